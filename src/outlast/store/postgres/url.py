"""The connection URL of a PostgreSQL store, with the options of Outlast."""

import re
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit, urlunsplit

from outlast.core.address import shown_address
from outlast.errors import ConfigurationError
from outlast.store.postgres.placeholders import SCHEMA
from outlast.store.url_options import read_flag, read_options, read_seconds

DEFAULT_WAIT_S = 30.0
"""Seconds that a write is retried while the server is unavailable."""

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_OPTIONS = ("schema", "pooler", "wait", "notify")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresUrl:
    """A parsed connection URL. `dsn` may hold a password and is never safe; `safe_text` is.

    `pooler`: the server is behind a transaction pooler, so no session state may be used.
    `notify`: whether commits send notifications to idle workers.
    `wait`: seconds that a write is retried while the server is unavailable.
    """

    dsn: str = field(repr=False)
    safe_text: str
    schema: str = SCHEMA
    pooler: bool = False
    notify: bool = True
    wait: float = DEFAULT_WAIT_S


def parse_url(url: str) -> PostgresUrl:
    """Parse `postgresql://user@host/db?schema=outlast`; other options are left to the driver.

    Raises ConfigurationError if an option of Outlast has an invalid value.
    """
    parts = urlsplit(url)
    safe = shown_address(url)
    options = read_options(parts.query, where=safe)
    own = {name: options.pop(name) for name in _OPTIONS if name in options}
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options), ""))
    return PostgresUrl(
        dsn=dsn,
        safe_text=safe,
        schema=_schema(own.get("schema", SCHEMA), safe),
        pooler=read_flag(own, "pooler", where=safe),
        notify=read_flag(own, "notify", where=safe, default=True),
        wait=read_seconds(own, "wait", where=safe, default=DEFAULT_WAIT_S),
    )


def _schema(name: str, url: str) -> str:
    if not _SCHEMA.fullmatch(name) or name.startswith("pg_"):
        raise ConfigurationError(
            f"{url}: schema is {name!r}; write up to 63 lower-case letters, digits and "
            "underscores, not beginning with a digit or pg_"
        )
    return name

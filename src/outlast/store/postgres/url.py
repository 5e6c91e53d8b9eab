"""The connection URL of a PostgreSQL store, with the options of Outlast."""

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from outlast.core.address import shown_address
from outlast.errors import ConfigurationError
from outlast.store.postgres.placeholders import SCHEMA

MAX_WAIT_S = 3600.0

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
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    own = {name: options.pop(name) for name in _OPTIONS if name in options}
    safe = shown_address(url)
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(options), ""))
    return PostgresUrl(
        dsn=dsn,
        safe_text=safe,
        schema=_schema(own.get("schema", SCHEMA), safe),
        pooler=_flag("pooler", own.get("pooler", "false"), safe),
        notify=_flag("notify", own.get("notify", "true"), safe),
        wait=_seconds(own.get("wait", str(DEFAULT_WAIT_S)), safe),
    )


def _schema(name: str, url: str) -> str:
    if not _SCHEMA.fullmatch(name) or name.startswith("pg_"):
        raise ConfigurationError(
            f"{url}: schema is {name!r}; write up to 63 lower-case letters, digits and "
            "underscores, not beginning with a digit or pg_"
        )
    return name


def _flag(what: str, text: str, url: str) -> bool:
    if text not in {"true", "false"}:
        raise ConfigurationError(f"{url}: {what} is {text!r}; write true or false")
    return text == "true"


def _seconds(text: str, url: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT_S:
        raise ConfigurationError(f"{url}: wait is {text!r}; write seconds from 0 to 3600")
    return seconds

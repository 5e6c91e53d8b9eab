"""The address of a database, taken apart and checked: whom to ask, which schema, which settings."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from outlast.errors import ConfigurationError
from outlast.store.postgres.statements import SCHEMA

HOUR = 3600.0
WAIT = 30.0
"""Seconds that a write waits for a server that is away before it gives up."""

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_OURS = ("schema", "pooler", "wait", "notify")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresUrl:
    """Where the database is. `dsn` may hold a password: it is never shown; `shown` is.

    `pooler`: a transaction pooler stands between, so nothing of a session may be relied on.
    `notify`: whether commits tell idle workers.
    """

    dsn: str
    safe_text: str
    schema: str = SCHEMA
    pooler: bool = False
    notify: bool = True
    wait: float = WAIT


def address(url: str) -> PostgresUrl:
    """From `postgresql://user@host/db?schema=outlast`; what is not ours is left to the driver."""
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {name: asked.pop(name) for name in _OURS if name in asked}
    shown = _without_password(url)
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(asked), ""))
    return PostgresUrl(
        dsn=dsn,
        safe_text=shown,
        schema=_schema(ours.get("schema", SCHEMA), shown),
        pooler=_flag("pooler", ours.get("pooler", "false"), shown),
        notify=_flag("notify", ours.get("notify", "true"), shown),
        wait=_seconds(ours.get("wait", str(WAIT)), shown),
    )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    who, at, where = parts.netloc.rpartition("@")
    kept = f"{who.split(':', 1)[0]}{at}{where}"
    query = urlencode([(k, v) for k, v in parse_qsl(parts.query) if "pass" not in k.lower()])
    return urlunsplit((parts.scheme, kept, parts.path, query, ""))


def _schema(name: str, url: str) -> str:
    if not _SCHEMA.fullmatch(name) or name.startswith("pg_"):
        raise ConfigurationError(
            f"{url}: schema is {name!r}; write up to 63 small letters, digits and underscores, "
            "not beginning with a digit or pg_"
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
    if not 0 <= seconds <= HOUR:
        raise ConfigurationError(f"{url}: wait is {text!r}; write seconds from 0 to 3600")
    return seconds

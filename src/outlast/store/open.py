"""From an address to a store."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from outlast.clock import Clock
from outlast.core.ids import Ids
from outlast.core.limits import repr_short
from outlast.errors import ConfigurationError, OperatorError
from outlast.store.contract import Store

HOUR = 3600.0
SQLITE = "sqlite:///"
DRIVERS = ("aiohttp", "boto3", "botocore")
KEYVALUE = ("etcd://", "dynamodb://")
POSTGRES = ("postgresql://", "postgres://")


def open_store(url: str, *, clock: Clock | None = None, ids: Ids | None = None) -> Store:
    """The store at that address, not yet opened.

    `sqlite:///jobs.db`, `sqlite:////var/jobs.db`, `postgresql://user@host/database`,
    `etcd://host:2379,host2/prefix`, `dynamodb://table?region=eu-central-1`.
    """
    if isinstance(url, str) and url.startswith("sqlite:"):
        return _sqlite(url, clock, ids)
    if isinstance(url, str) and url.startswith(POSTGRES):
        return _postgres(url, clock, ids)
    if isinstance(url, str) and url.startswith(KEYVALUE):
        return _keyvalue(url, clock, ids)
    raise ConfigurationError(
        f"{repr_short(without_password(url))} is no store's address; write for example "
        "sqlite:///jobs.db or postgresql://user@host/database"
    )


def without_password(url: Any) -> Any:
    """The same for people's eyes."""
    return re.sub(r"(?<=://)([^/@:]*):[^/]*@", r"\1@", url) if isinstance(url, str) else url


def _postgres(url: str, clock: Clock | None, ids: Ids | None) -> Store:
    try:
        from outlast.store.postgres.store import PostgresStore  # noqa: PLC0415 - only when chosen
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "asyncpg":
            raise
        raise OperatorError(
            "PostgreSQL needs a driver that is not installed; pip install 'outlast[postgres]'"
        ) from error
    return PostgresStore(url, clock=clock, ids=ids)


def _keyvalue(url: str, clock: Clock | None, ids: Ids | None) -> Store:
    from outlast.store.keyvalue import url as keyvalue_url  # noqa: PLC0415 - only when chosen

    make = keyvalue_url.etcd_store if url.startswith("etcd:") else keyvalue_url.dynamodb_store
    try:
        return make(url, clock=clock, ids=ids)
    except ModuleNotFoundError as error:
        extra = url.partition(":")[0]
        if error.name is None or error.name.partition(".")[0] not in DRIVERS:
            raise
        raise OperatorError(
            f"{extra} needs a driver that is not installed; pip install 'outlast[{extra}]'"
        ) from error


def _sqlite(url: str, clock: Clock | None, ids: Ids | None) -> Store:
    from outlast.store.sqlite.store import BUSY, SqliteStore  # noqa: PLC0415 - only when chosen

    # Split by hand: a library would drop a "#" and what follows, and control characters.
    name, _, query = url.removeprefix(SQLITE).partition("?")
    if not url.startswith(SQLITE) or not name or ":memory:" in name or "\0" in name:
        raise ConfigurationError(
            f"{url!r} names no file; write sqlite:///jobs.db, or sqlite:////var/lib/jobs.db for "
            "one that starts at the root. Jobs in memory would not survive"
        )
    options = dict(parse_qsl(query, keep_blank_values=True))
    adopt = _flag(options.pop("adopt", "false"), url)
    busy = _seconds(options.pop("busy", str(BUSY)), url)
    if options:
        raise ConfigurationError(
            f"{url!r} has unknown options {sorted(options)}; known: adopt, busy"
        )
    return SqliteStore(Path(name), clock=clock, ids=ids, busy=busy, adopt=adopt)


def _flag(text: str, url: str) -> bool:
    if text not in {"true", "false"}:
        raise ConfigurationError(f"{url!r}: adopt is {text!r}; write true or false")
    return text == "true"


def _seconds(text: str, url: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= HOUR:
        raise ConfigurationError(f"{url!r}: busy is {text!r}; write seconds from 0 to 3600")
    return seconds

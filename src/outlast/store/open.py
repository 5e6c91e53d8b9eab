"""Open a store by its URL."""

import os
from pathlib import Path
from typing import Final

from outlast.clock import Clock
from outlast.core.address import read_address, repr_address
from outlast.core.ids import Ids
from outlast.errors import ConfigurationError, OperatorError
from outlast.store.contract import Store
from outlast.store.url_options import read_flag, read_options, read_seconds, refuse_unknown

SQLITE: Final = "sqlite:///"
SQLITE_OPTIONS: Final = ("adopt", "busy")
POSTGRES: Final = ("postgresql://", "postgres://")
KEYVALUE: Final = ("etcd://", "dynamodb://")
KEYVALUE_DRIVERS: Final = ("aiohttp", "boto3", "botocore")
URL_VARIABLE: Final = "OUTLAST_URL"


def url_from_environment() -> str:
    """Return the URL in OUTLAST_URL; ConfigurationError if the variable is not set."""
    url = os.environ.get(URL_VARIABLE)
    if not url:
        raise ConfigurationError(
            f"Outlast() has no store: {URL_VARIABLE} is not set; run `export "
            f'{URL_VARIABLE}=sqlite:///jobs.db`, or write Outlast("sqlite:///jobs.db")'
        )
    return url


def open_store(url: str, *, clock: Clock | None = None, ids: Ids | None = None) -> Store:
    """Return the store at that URL, not yet opened.

    `sqlite:///jobs.db`, `sqlite:////var/jobs.db`, `postgresql://user@host/database`,
    `etcd://host:2379,host2/prefix`, `dynamodb://table?region=eu-central-1`.

    Raises ConfigurationError for a URL that names no store, OperatorError without its driver.
    """
    if isinstance(url, str) and url.startswith("sqlite:"):
        return _sqlite(url, clock, ids)
    if isinstance(url, str) and url.startswith(POSTGRES):
        return _postgres(_readable(url), clock, ids)
    if isinstance(url, str) and url.startswith(KEYVALUE):
        return _keyvalue(_readable(url), clock, ids)
    raise ConfigurationError(
        f"{repr_address(url)} is no store's address; write for example "
        "sqlite:///jobs.db or postgresql://user@host/database"
    )


def _readable(url: str) -> str:
    """Return the URL; ConfigurationError if it is unclear where its host ends."""
    if read_address(url) is None:
        raise ConfigurationError(
            f"{repr_address(url)} names no database server: its hosts and ports cannot be read. In "
            "a user or password write %2F for /, %3F for ?, %23 for # and %40 for @"
        )
    return url


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
        if error.name is None or error.name.partition(".")[0] not in KEYVALUE_DRIVERS:
            raise
        raise OperatorError(
            f"{extra} needs a driver that is not installed; pip install 'outlast[{extra}]'"
        ) from error


def _sqlite(url: str, clock: Clock | None, ids: Ids | None) -> Store:
    from outlast.store.sqlite.store import BUSY_TIMEOUT_S, SqliteStore  # noqa: PLC0415 - only when chosen

    # Split by hand: urlsplit drops control characters, and "#" with everything after it.
    name, _, query = url.removeprefix(SQLITE).partition("?")
    if not url.startswith(SQLITE) or not name or ":memory:" in name or "\0" in name:
        raise ConfigurationError(
            f"{repr_address(url)} names no file; write sqlite:///jobs.db, or "
            "sqlite:////var/lib/jobs.db for an absolute path. Jobs in memory would not survive"
        )
    where = repr_address(url)
    options = read_options(query, where=where)
    adopt = read_flag(options, "adopt", where=where)
    busy = read_seconds(options, "busy", where=where, default=BUSY_TIMEOUT_S)
    refuse_unknown(options, SQLITE_OPTIONS, where=where)
    return SqliteStore(Path(name), clock=clock, ids=ids, busy=busy, adopt=adopt)

"""Connecting to a server, and its errors in our words."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import asyncpg

from outlast.errors import (
    InvalidJob,
    OperatorError,
    OutlastError,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from outlast.store.contract.transfer import closed_error, from_row
from outlast.store.postgres.url import PostgresUrl

CONNECT: Final = 5.0
"""Seconds within which a server must answer a new connection."""

SETTINGS: Final = {
    "application_name": "outlast",
    # The live tables are empty when they are analysed and full a moment later: a plan that reads
    # them whole is right for the one and ruinous for the other.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # It finds everything that fits before it gives the first row: a page would cost the whole rest.
    "enable_bitmapscan": "off",
    "jit": "off",
}

_PLANS_ONCE: Final = {"plan_cache_mode": "force_generic_plan"}

NOT_OPEN: Final = "OL001"
"""The store is being moved, or was: its footing is the message."""

CONNECTION_ERRORS = (
    ConnectionError,
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InternalClientError,
)
"""The server is away, restarts, or has no room: it may answer again soon."""


def is_connection_error(error: BaseException) -> bool:
    """Whether the connection is of no more use; a value that the driver cannot send is not that."""
    return isinstance(error, CONNECTION_ERRORS) and not isinstance(error, ValueError)


RETRYABLE = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
)
"""Nothing was written, and the same again may well succeed."""


async def connect(address: PostgresUrl, *, plans_once: bool = False) -> asyncpg.Connection:
    """A connection of ours; OperatorError in one line if there can be none.

    `plans_once`: statements are planned once for any values, which is right for those that say
    exactly which rows they mean, and saves more than their running takes.
    """
    settings = {} if address.pooler else SETTINGS | (_PLANS_ONCE if plans_once else {})
    cache = {"statement_cache_size": 0} if address.pooler else {}
    with translated(address):
        try:
            connection = await asyncpg.connect(
                address.dsn, timeout=CONNECT, server_settings=settings, **cache
            )
        except (
            ValueError,
            TypeError,
            OverflowError,
        ) as error:  # of the address, before anybody was asked
            raise InvalidJob(f"{address.safe_text} names no database server: {error}") from error
        try:
            await connection.set_type_codec(
                "uuid", encoder=str, decoder=str, schema="pg_catalog", format="text"
            )
        except BaseException:  # whoever is cancelled here has no connection to close
            connection.terminate()
            raise
        return connection


@contextmanager
def translated(address: PostgresUrl) -> Iterator[None]:
    """Errors of the driver and the server, in our words."""
    try:
        yield
    except OutlastError:
        raise
    except Exception as error:
        raise translate_error(error, address) from error


def translate_error(error: Exception, address: PostgresUrl) -> Exception:
    """Our error for it, or itself if it is a fault of ours."""
    if isinstance(error, OutlastError):
        return error
    if getattr(error, "sqlstate", None) == NOT_OPEN:
        return closed_error(from_row(json.loads(str(error).splitlines()[0])))
    for kinds, ours, words in WORDS:
        if isinstance(error, kinds):
            told = {"url": address.safe_text, "schema": address.schema, "why": _first(error)}
            return ours(words.format_map(told))
    return error


WORDS: Final[tuple[tuple[tuple[type[Exception], ...], type[OutlastError], str], ...]] = (
    (
        (asyncpg.InvalidAuthorizationSpecificationError,),
        OperatorError,
        "{url} refuses us: {why}; check user and password in the URL",
    ),
    (
        (asyncpg.InvalidCatalogNameError,),
        OperatorError,
        "{url}: {why}; create it with createdb, or name another in the URL",
    ),
    (
        (asyncpg.InsufficientPrivilegeError,),
        OperatorError,
        "{url}: {why}; grant the role that, or let an owner run: outlast db migrate",
    ),
    (
        (asyncpg.ReadOnlySQLTransactionError,),
        StoreReadOnly,
        "{url} takes no writes: it is a standby, or set read-only; name the primary in the URL",
    ),
    (
        (asyncpg.DiskFullError,),
        StoreFull,
        "{url} has no space left; nothing was half-written",
    ),
    (
        (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError),
        StoreCorrupt,
        "{url} is damaged: {why}",
    ),
    (
        (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError),
        OperatorError,
        "{url} has no Outlast tables in schema {schema}; create them: outlast db migrate",
    ),
    (
        (asyncpg.UndefinedObjectError,),
        OperatorError,
        "{url}: {why}; of ours are schema, pooler, wait and notify",
    ),
    (RETRYABLE, StoreBusy, "{url}: {why}; try again"),
    ((asyncpg.DataError, ValueError), InvalidJob, "no store can hold that: {why}"),
    (CONNECTION_ERRORS, StoreUnavailable, "{url} does not answer: {why}"),
)
"""The first that fits counts."""


def _first(error: Exception) -> str:
    """Its first line, and only what the server says of itself: never the row it is about."""
    text = str(error) or type(error).__name__
    return text.splitlines()[0][:200]


def count(status: Any) -> int:
    """How many rows a statement changed, from what the server says of it: `UPDATE 3`."""
    last = str(status).rpartition(" ")[2]
    return int(last) if last.isdigit() else 0

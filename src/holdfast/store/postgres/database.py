"""Connecting to a server, and its errors in our words."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import asyncpg

from holdfast.errors import (
    HoldfastError,
    InvalidJob,
    OperatorError,
    StoreBroken,
    StoreBusy,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from holdfast.store.postgres.address import Address

CONNECT: Final = 5.0
"""Seconds within which a server must answer a new connection."""

SETTINGS: Final = {
    "application_name": "holdfast",
    # The live tables are empty when they are analysed and full a moment later: a plan that reads
    # them whole is right for the one and ruinous for the other.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # It finds everything that fits before it gives the first row: a page would cost the whole rest.
    "enable_bitmapscan": "off",
    "jit": "off",
}

GONE = (
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


def is_gone(error: BaseException) -> bool:
    """Whether the connection is of no more use; a value that the driver cannot send is not that."""
    return isinstance(error, GONE) and not isinstance(error, ValueError)


AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.LockNotAvailableError)
"""Nothing was written, and the same again may well succeed."""


async def connect(address: Address) -> asyncpg.Connection:
    """A connection of ours; OperatorError in one line if there can be none."""
    settings = {} if address.pooler else SETTINGS
    cache = {"statement_cache_size": 0} if address.pooler else {}
    with translated(address):
        connection = await asyncpg.connect(
            address.dsn, timeout=CONNECT, server_settings=settings, **cache
        )
        await connection.set_type_codec(
            "uuid", encoder=str, decoder=str, schema="pg_catalog", format="text"
        )
        return connection


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Errors of the driver and the server, in our words."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        raise named(error, address) from error


def named(error: Exception, address: Address) -> Exception:
    """Our error for it, or itself if it is a fault of ours."""
    named: HoldfastError | None = None
    match error:
        case HoldfastError():
            return error
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            named = OperatorError(f"{address.shown} refuses us: {_first(error)}; check the URL")
        case asyncpg.InvalidCatalogNameError():
            named = OperatorError(f"{address.shown}: {_first(error)}; create it: createdb …")
        case asyncpg.InsufficientPrivilegeError():
            named = OperatorError(
                f"{address.shown}: {_first(error)}; grant the role that, or let an owner run "
                "`holdfast db migrate`"
            )
        case asyncpg.ReadOnlySQLTransactionError():
            named = StoreReadOnly(f"{address.shown} takes no writes: a standby, or read-only")
        case asyncpg.DiskFullError():
            named = StoreFull(f"{address.shown} has no space left; nothing was half-written")
        case asyncpg.DataCorruptedError() | asyncpg.IndexCorruptedError():
            named = StoreBroken(f"{address.shown} is damaged: {_first(error)}")
        case asyncpg.UndefinedTableError() | asyncpg.InvalidSchemaNameError():
            named = OperatorError(
                f"{address.shown} has no Holdfast tables in schema {address.schema}; create them: "
                "holdfast db migrate"
            )
        case _ if isinstance(error, AGAIN):
            named = StoreBusy(f"{address.shown}: {_first(error)}; try again")
        case _ if is_gone(error):
            named = StoreUnavailable(f"{address.shown} does not answer: {_first(error)}")
        case asyncpg.DataError() | ValueError():
            named = InvalidJob(f"no store can hold that: {_first(error)}")
        case asyncio.CancelledError() | _:
            return error
    return named


def _first(error: Exception) -> str:
    """Its first line, and only what the server says of itself: never the row it is about."""
    text = str(error) or type(error).__name__
    return text.splitlines()[0][:200]


def count(status: Any) -> int:
    """How many rows a statement changed, from what the server says of it: `UPDATE 3`."""
    last = str(status).rpartition(" ")[2]
    return int(last) if last.isdigit() else 0

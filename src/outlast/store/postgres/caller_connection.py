"""Use of a caller's own connection: asyncpg, psycopg or SQLAlchemy."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import asyncpg

from outlast.core.sync_coroutine import run_without_waiting
from outlast.errors import InvalidArgument, OutlastError
from outlast.store import sqlalchemy_connection as alchemy
from outlast.store.postgres.caller_drivers import (
    AsyncPsycopgRunner,
    ForeignAsyncpgRunner,
    PsycopgRunner,
)
from outlast.store.postgres.connection import translate_error
from outlast.store.postgres.placeholders import Probe
from outlast.store.postgres.unit_of_work import StatementRunner
from outlast.store.postgres.url import PostgresUrl
from outlast.store.sqlalchemy_connection import is_instance

T = TypeVar("T")
Use = Callable[[StatementRunner], Coroutine[Any, Any, T]]

SUPPORTED: Final = (
    "give a connection of psycopg or asyncpg, or a connection or session of SQLAlchemy on one of "
    "these two"
)
NO_TRANSACTION: Final = "tx has no open transaction; begin one on it first"
FAILED: Final = "a statement of the transaction of tx failed; roll it back and begin a new one"

_DRIVERS: Final = {"psycopg", "psycopg_async", "asyncpg"}

_MESSAGE_BY_STATE: Final = {
    "25P02": FAILED,
    "25006": "tx is read-only; begin a transaction that may write",
    "57014": "a statement was cancelled while tx was used; see the timeouts of its connection",
}


async def with_caller_connection(
    tx: Any, use: "Use[T]", address: PostgresUrl, probe: Probe | None
) -> T:
    """Return the result of `use` on the caller's connection.

    Raises InvalidArgument if the driver is not supported or no transaction is open. A blocking
    connection is used in a thread while its owner waits, so that the event loop stays free.
    psycopg allows that; a sqlite3 connection must stay in its own thread.
    """
    try:
        if alchemy.is_sync(tx) or alchemy.is_async(tx):
            _require_driver(tx)
        if is_instance(tx, "psycopg", "Connection") or alchemy.is_sync(tx):
            return await run_in_thread(
                lambda: run_without_waiting(_use_blocking(tx, use, address, probe))
            )
        return await use(await _runner(tx, address, probe))
    except Exception as error:
        translated = _translate(error, address)
        if translated is error:
            raise
        raise translated from error


async def _use_blocking(tx: Any, use: "Use[T]", address: PostgresUrl, probe: Probe | None) -> T:
    connection = alchemy.driver_connection(tx) if alchemy.is_sync(tx) else tx
    _require_psycopg(connection)
    return await use(PsycopgRunner(connection, address.schema, probe))


async def _runner(tx: Any, address: PostgresUrl, probe: Probe | None) -> StatementRunner:
    connection = await alchemy.async_driver_connection(tx) if alchemy.is_async(tx) else tx
    if is_instance(connection, "psycopg", "AsyncConnection"):
        _require_psycopg(connection)
        return AsyncPsycopgRunner(connection, address.schema, probe)
    if isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        _require_asyncpg(connection)
        return ForeignAsyncpgRunner(connection, address.schema, probe)
    raise _unknown(tx)


def _unknown(tx: Any, driver: str = "") -> InvalidArgument:
    what = f"{type(tx).__module__.partition('.')[0]} {type(tx).__name__}"
    return InvalidArgument(f"tx is a {what.removeprefix('builtins ')}{driver}; {SUPPORTED}")


def _require_driver(tx: Any) -> None:
    """Raise InvalidArgument for another driver, before its connection is used in a thread."""
    dialect = alchemy.dialect_of(tx)
    if dialect.driver not in _DRIVERS:
        raise _unknown(tx, f" on {dialect.name} ({dialect.driver})")


def _require_psycopg(connection: Any) -> None:
    if connection.closed:
        raise InvalidArgument("tx cannot be used: the connection is closed")
    status = connection.info.transaction_status.name
    if status == "INERROR":
        raise InvalidArgument(FAILED)
    if status == "ACTIVE":
        raise InvalidArgument("tx is busy with another statement; wait for it first")
    if status == "IDLE" and connection.autocommit:
        raise InvalidArgument(NO_TRANSACTION)


def _require_asyncpg(connection: Any) -> None:
    if connection.is_closed():
        raise InvalidArgument("tx cannot be used: the connection is closed")
    if not connection.is_in_transaction():
        raise InvalidArgument(NO_TRANSACTION)


async def run_in_thread(step: Callable[[], T]) -> T:
    """Return the result of a blocking step, run in a thread.

    A cancelled caller still waits for the step, which uses the caller's connection.
    """
    running = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _translate(error: Exception, address: PostgresUrl) -> Exception:
    """Translate an error of a driver, or of SQLAlchemy around it."""
    if isinstance(error, OutlastError):
        return error
    cause: Any = getattr(error, "orig", None) or error
    cause = cause.__cause__ if _is_sqlalchemy_error(cause) else cause
    state = getattr(cause, "sqlstate", None)
    if state in _MESSAGE_BY_STATE:
        return InvalidArgument(_MESSAGE_BY_STATE[state])
    if alchemy.is_error(error) or state is None:
        return _unusable(error)
    return translate_error(to_asyncpg_error(cause), address)


def to_asyncpg_error(error: Exception) -> Exception:
    """Return the asyncpg error of the same SQLSTATE; an error without one is returned as is."""
    state = getattr(error, "sqlstate", None)
    if state is None or isinstance(error, asyncpg.PostgresError):
        return error
    converted: Exception = asyncpg.PostgresError.new(
        {"C": state, "M": str(error).partition("\n")[0]}
    )
    return converted


def _is_sqlalchemy_error(error: Any) -> bool:
    return type(error).__module__.startswith("sqlalchemy.")


def _unusable(error: Exception) -> Exception:
    """Return InvalidArgument for a connection that is closed, busy or of another loop."""
    drivers = ("psycopg", "asyncpg", "sqlalchemy")
    is_driver_error = type(error).__module__.startswith(drivers) or isinstance(error, OSError)
    if not is_driver_error:
        return error
    return InvalidArgument(f"tx cannot be used: {str(error).partition(chr(10))[0][:200]}")

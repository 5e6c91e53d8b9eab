"""A caller's own connection: recognised, checked, and used without leaving a trace on it."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import asyncpg

from outlast.core.sync_coroutine import run_without_waiting
from outlast.errors import InvalidArgument, OutlastError
from outlast.store.postgres.caller_drivers import (
    AsyncPsycopgLane,
    ForeignAsyncpgRunner,
    PsycopgRunner,
)
from outlast.store.postgres.connection import translate_error
from outlast.store.postgres.statements import Probe
from outlast.store.postgres.unit_of_work import StatementRunner
from outlast.store.postgres.url import PostgresUrl

T = TypeVar("T")
Use = Callable[[StatementRunner], Coroutine[Any, Any, T]]

KNOWN: Final = (
    "give a connection of psycopg or asyncpg, or a connection or session of SQLAlchemy on one of "
    "these two"
)
NONE_OPEN: Final = "tx has no transaction open that could carry a job; begin one on it first"
FAILED: Final = "tx has a transaction in which a statement failed; roll it back and begin anew"

_DRIVERS: Final = {"psycopg", "psycopg_async", "asyncpg"}

_WORDS: Final = {
    "25P02": FAILED,
    "25006": "tx is read-only; begin a transaction that may write",
    "57014": "a statement was cancelled while tx was used; see the timeouts of its connection",
}


async def with_caller_connection(
    tx: Any, use: "Use[T]", address: PostgresUrl, probe: Probe | None
) -> T:
    """What `use` answers on that connection. InvalidArgument if it cannot carry a job.

    One that blocks is used on a thread while its owner waits for us, so that whomever it waits for
    can go on. psycopg's are made for that; none but its own thread may touch one of sqlite3.
    """
    try:
        if _is_alchemy(tx):
            _require_driver(tx)
        if _is(tx, "psycopg", "Connection") or _is_sync_alchemy(tx):
            return await on_a_thread(
                lambda: run_without_waiting(_use_blocking(tx, use, address, probe))
            )
        return await use(await _lane(tx, address, probe))
    except Exception as error:
        better = _in_our_words(error, address)
        if better is error:
            raise
        raise better from error


async def _use_blocking(tx: Any, use: "Use[T]", address: PostgresUrl, probe: Probe | None) -> T:
    connection = _driver_connection(tx) if _is_sync_alchemy(tx) else tx
    _require_psycopg(connection)
    return await use(PsycopgRunner(connection, address.schema, probe))


async def _lane(tx: Any, address: PostgresUrl, probe: Probe | None) -> StatementRunner:
    connection = await _awaited_driver_s(tx) if _is_async_alchemy(tx) else tx
    if _is(connection, "psycopg", "AsyncConnection"):
        _require_psycopg(connection)
        return AsyncPsycopgLane(connection, address.schema, probe)
    if isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        _require_asyncpg(connection)
        return ForeignAsyncpgRunner(connection, address.schema, probe)
    raise _unknown(tx)


def _unknown(tx: Any, driver: str = "") -> InvalidArgument:
    what = f"{type(tx).__module__.partition('.')[0]} {type(tx).__name__}"
    return InvalidArgument(f"tx is a {what.removeprefix('builtins ')}{driver}; {KNOWN}")


def _require_driver(tx: Any) -> None:
    """Before anything of it is touched on a thread, which others would not forgive."""
    bind = tx.get_bind() if hasattr(tx, "get_bind") else tx
    if bind.dialect.driver not in _DRIVERS:
        raise _unknown(tx, f" on {bind.dialect.name} ({bind.dialect.driver})")


def _require_psycopg(connection: Any) -> None:
    if connection.closed:
        raise InvalidArgument("tx cannot be used: the connection is closed")
    status = connection.info.transaction_status.name
    if status == "INERROR":
        raise InvalidArgument(FAILED)
    if status == "ACTIVE":
        raise InvalidArgument("tx is busy with another statement; wait for it first")
    if status == "IDLE" and connection.autocommit:
        raise InvalidArgument(NONE_OPEN)


def _require_asyncpg(connection: Any) -> None:
    if connection.is_closed():
        raise InvalidArgument("tx cannot be used: the connection is closed")
    if not connection.is_in_transaction():
        raise InvalidArgument(NONE_OPEN)


def _is_alchemy(tx: Any) -> bool:
    return _is_sync_alchemy(tx) or _is_async_alchemy(tx)


def _is_sync_alchemy(tx: Any) -> bool:
    return _is(tx, "sqlalchemy.engine", "Connection") or _is(tx, "sqlalchemy.orm", "Session")


def _is_async_alchemy(tx: Any) -> bool:
    names = ("AsyncConnection", "AsyncSession")
    return any(_is(tx, "sqlalchemy.ext.asyncio", name) for name in names)


def _driver_connection(tx: Any) -> Any:
    """The connection of the driver beneath it, in a transaction that SQLAlchemy knows of."""
    connection = tx.connection() if _is(tx, "sqlalchemy.orm", "Session") else tx
    connection.exec_driver_sql("SELECT 1").close()  # one that it did not begin it would not commit
    return connection.connection.driver_connection


async def _awaited_driver_s(tx: Any) -> Any:
    is_session = _is(tx, "sqlalchemy.ext.asyncio", "AsyncSession")
    connection = await tx.connection() if is_session else tx
    (await connection.exec_driver_sql("SELECT 1")).close()
    return (await connection.get_raw_connection()).driver_connection


def _is(thing: Any, module: str, name: str) -> bool:
    """Whether it is of that class, which is not imported for asking."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(thing, kind)


async def on_a_thread(step: Callable[[], T]) -> T:
    """What it gives. It is waited for also if nobody wants it any more: it uses what is theirs."""
    running = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _in_our_words(error: Exception, address: PostgresUrl) -> Exception:
    """Of either driver, and of SQLAlchemy, which keeps what happened beneath it."""
    if isinstance(error, OutlastError):
        return error
    beneath: Any = getattr(error, "orig", None) or error
    beneath = beneath.__cause__ if _is_adapted(beneath) else beneath
    state = getattr(beneath, "sqlstate", None)
    if state in _WORDS:
        return InvalidArgument(_WORDS[state])
    if _is(error, "sqlalchemy.exc", "SQLAlchemyError") or state is None:
        return _unusable(error)
    return translate_error(of_server(beneath), address)


def of_server(error: Exception) -> Exception:
    """The same as asyncpg would have it; what does not come from the server stays as it is."""
    state = getattr(error, "sqlstate", None)
    if state is None or isinstance(error, asyncpg.PostgresError):
        return error
    told: Exception = asyncpg.PostgresError.new({"C": state, "M": str(error).partition("\n")[0]})
    return told


def _is_adapted(error: Any) -> bool:
    return type(error).__module__.startswith("sqlalchemy.")


def _unusable(error: Exception) -> Exception:
    """Closed, busy, of another loop: whatever keeps the connection itself from being used."""
    drivers = ("psycopg", "asyncpg", "sqlalchemy")
    is_theirs = type(error).__module__.startswith(drivers) or isinstance(error, OSError)
    if not is_theirs:
        return error
    return InvalidArgument(f"tx cannot be used: {str(error).partition(chr(10))[0][:200]}")

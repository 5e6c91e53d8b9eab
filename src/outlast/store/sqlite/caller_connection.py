"""Use of the caller's own connection for an enqueue, restored to its settings afterwards."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from outlast.errors import InvalidArgument
from outlast.store import sqlalchemy_connection as alchemy

T = TypeVar("T")

SUPPORTED: Final = (
    "give a connection of sqlite3 or aiosqlite, or a connection or session of SQLAlchemy on one of "
    "these two"
)


async def with_caller_connection(tx: Any, use: Callable[[sqlite3.Connection], T]) -> T:
    """Return the result of `use` on the caller's sqlite3 connection.

    A connection of aiosqlite belongs to a thread: `use` runs there. Every other one is used on the
    thread of the caller. Raises InvalidArgument if it is not a connection to SQLite.
    """
    connection = await _driver_connection(tx)
    if alchemy.is_instance(connection, "aiosqlite", "Connection"):
        return await _in_its_thread(connection, use)
    if not isinstance(connection, sqlite3.Connection):
        raise InvalidArgument(f"tx is a {type(tx).__name__}; {SUPPORTED}")
    return use(connection)


@contextmanager
def caller_cursor(connection: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Cursor]:
    """Yield a cursor on the caller's connection, in its transaction.

    Begins a transaction if the connection begins them implicitly. Raises InvalidArgument if it is
    not a usable connection to this file, or has no open transaction.
    """
    try:
        text_factory, connection.text_factory = connection.text_factory, str
        cursor = connection.cursor()
    except sqlite3.ProgrammingError as error:  # closed, or used on another thread
        raise InvalidArgument(f"tx cannot be used: {error}") from error
    try:
        cursor.row_factory = None
        _require_same_file(cursor, path)
        _require_transaction(connection, cursor)
        yield cursor
    finally:
        connection.text_factory = text_factory


async def _driver_connection(tx: Any) -> Any:
    """Return the connection of the driver: `tx` itself, or the one of a session."""
    if not (alchemy.is_sync(tx) or alchemy.is_async(tx)):
        return tx
    try:
        dialect = alchemy.dialect_of(tx)
        if dialect.name != "sqlite":
            what = f"{type(tx).__name__} on {dialect.name} ({dialect.driver})"
            raise InvalidArgument(f"tx is a {what}; {SUPPORTED}")
        if alchemy.is_async(tx):
            return await alchemy.async_driver_connection(tx)
        return alchemy.driver_connection(tx)
    except Exception as error:
        if not alchemy.is_error(error):
            raise
        cause = getattr(error, "orig", None)
        if isinstance(cause, sqlite3.Error):
            raise cause from error
        first_line = str(error).partition("\n")[0][:200]
        raise InvalidArgument(f"tx cannot be used: {first_line}") from error


async def _in_its_thread(connection: Any, use: Callable[[sqlite3.Connection], T]) -> T:
    """Run `use` on the thread of an aiosqlite connection, after its earlier statements."""
    try:
        driver = connection._conn  # noqa: SLF001 - aiosqlite has no public access
    except ValueError as error:
        raise InvalidArgument(f"tx cannot be used: {error}") from error
    done: T = await connection._execute(use, driver)  # noqa: SLF001 - same
    return done


def _require_same_file(cursor: sqlite3.Cursor, path: Path) -> None:
    files = {row[1]: row[2] for row in cursor.execute("PRAGMA database_list")}
    main = files["main"] or "memory"
    if not (Path(main).exists() and path.samefile(main)):
        raise InvalidArgument(f"tx is a connection to {main}, not to {path}")


def _require_transaction(connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> None:
    if connection.in_transaction:
        return
    if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
        raise InvalidArgument("tx has no transaction open; run BEGIN IMMEDIATE on it first")
    cursor.execute("BEGIN IMMEDIATE")

"""Use of the caller's own connection for an enqueue, restored to its settings afterwards."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outlast.errors import InvalidArgument


@contextmanager
def caller_cursor(connection: Any, path: Path) -> Iterator[sqlite3.Cursor]:
    """Yield a cursor on the caller's connection, in its transaction.

    Begins a transaction if the connection begins them implicitly. Raises InvalidArgument if it is
    not a usable connection to this file, or has no open transaction.
    """
    if not isinstance(connection, sqlite3.Connection):
        raise InvalidArgument(f"tx is a {type(connection).__name__}; give a sqlite3.Connection")
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


def _require_same_file(cursor: sqlite3.Cursor, path: Path) -> None:
    files = {row[1]: row[2] for row in cursor.execute("PRAGMA database_list")}
    main = files["main"] or "memory"
    if not (Path(main).exists() and path.samefile(main)):
        raise InvalidArgument(f"tx is a connection to {main}, not to {path}")


def _require_transaction(connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> None:
    if connection.in_transaction:
        return
    if connection.isolation_level is None:
        raise InvalidArgument("tx has no transaction open; run BEGIN IMMEDIATE on it first")
    cursor.execute("BEGIN IMMEDIATE")

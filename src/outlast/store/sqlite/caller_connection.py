"""A caller's own connection, used for a moment and given back as it was."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outlast.errors import InvalidArgument


@contextmanager
def caller_cursor(connection: Any, path: Path) -> Iterator[sqlite3.Cursor]:
    """A cursor on it, if it is to this file and in a transaction; InvalidArgument otherwise."""
    if not isinstance(connection, sqlite3.Connection):
        raise InvalidArgument(f"tx is a {type(connection).__name__}; give a sqlite3.Connection")
    try:
        text_factory, connection.text_factory = connection.text_factory, str
        cursor = connection.cursor()
    except sqlite3.ProgrammingError as error:  # closed, or of another thread
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

"""Connections to the file with their pragmas, and the translation of SQLite's errors."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from outlast.errors import (
    ForeignStore,
    OperatorError,
    OutlastError,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
)
from outlast.store.sqlite.statements import run

MIN_VERSION: Final = (3, 38, 0)
"""The oldest SQLite library with the JSON operators that the statements use."""

WAL_FIX_VERSION: Final = (3, 51, 3)
"""The first SQLite library without the fault at a WAL reset."""

_LOCKED = StoreBusy, "{path} stayed locked{by}; end that, or wait longer"
_NOT_WRITABLE = (
    StoreReadOnly,
    "{path} or its folder cannot be written; allow this user to write there",
)
_ERRORS: dict[int, tuple[type[OperatorError], str]] = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: _NOT_WRITABLE,
    sqlite3.SQLITE_PERM: _NOT_WRITABLE,
    sqlite3.SQLITE_FULL: (
        StoreFull,
        "no space left for {path}; nothing was written. Make room and try again",
    ),
    sqlite3.SQLITE_NOTADB: (ForeignStore, "{path} is not a SQLite database; choose another file"),
    sqlite3.SQLITE_CANTOPEN: (
        StoreCorrupt,
        "{path} cannot be opened; create its folder, or allow this user to write there",
    ),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "{path} is damaged ({error}); restore it from a copy"),
    sqlite3.SQLITE_IOERR: (
        StoreCorrupt,
        "{path} could not be read or written ({error}); check the disk",
    ),
}


C = TypeVar("C", bound=sqlite3.Connection)


def connect(
    path: Path,
    *,
    busy: float,
    read_only: bool = False,
    factory: type[C] = sqlite3.Connection,  # type: ignore[assignment]  # the usual class
) -> C:
    """Connect with foreign keys, full synchronisation and temporary tables in memory.

    `busy` is the lock timeout in seconds. A `read_only` connection refuses writes and has no
    temporary tables.
    """
    with translated(path):
        connection = sqlite3.connect(
            path,
            timeout=busy,
            isolation_level=None,
            check_same_thread=False,
            factory=factory,
        )
        try:
            _prepare(connection, read_only=read_only)
        except BaseException:
            connection.close()
            raise
    return connection


def _prepare(connection: sqlite3.Connection, *, read_only: bool) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
        return
    cursor = connection.cursor()
    run(cursor, "schema.temp_selected")
    run(cursor, "schema.temp_changes")
    run(cursor, "schema.temp_finished")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as the errors of this package; see `translate`."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error


def translate(error: sqlite3.Error, path: Path) -> OutlastError:
    """Return the error that says what failed, on which file, and what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_CANTOPEN and path.parent.is_dir() and not _may_write(path.parent):
        code = sqlite3.SQLITE_READONLY
    kind, text = _ERRORS.get(code, (OperatorError, "{path}: {error}"))
    by = _lock_owner(path) if kind is StoreBusy else ""
    return kind(text.format(path=path, error=error, by=by))


def require_writable(path: Path) -> None:
    """Raise StoreReadOnly for a file without write permission.

    Called before SQLite opens it, which would leave new files beside it.
    """
    if os.access(path, os.F_OK) and not _may_write(path):
        raise StoreReadOnly(_NOT_WRITABLE[1].format(path=path))


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def require_version() -> None:
    """Raise OperatorError if the SQLite library is too old for the statements."""
    if sqlite3.sqlite_version_info < MIN_VERSION:
        need = ".".join(map(str, MIN_VERSION))
        raise OperatorError(
            f"Python's SQLite library is {sqlite3.sqlite_version}; Outlast needs {need} or newer"
        )


def health_warnings(version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> list[str]:
    """Return warnings about a version of the SQLite library; empty if it is healthy."""
    if version < WAL_FIX_VERSION:
        have, fixed = ".".join(map(str, version)), ".".join(map(str, WAL_FIX_VERSION))
        text = (
            f"SQLite {have} has a rare fault when several connections use one WAL file at the "
            f"moment it is reset; it is fixed in {fixed}. Upgrade when your system offers it."
        )
        return [text]
    return []


def _lock_owner(path: Path) -> str:
    """Return which process holds the write lock, where `/proc/locks` tells, else nothing.

    It must not open the file: closing it drops every lock that this process has on it.
    """
    try:
        inode = os.stat(f"{path}-shm").st_ino  # noqa: PTH116 - a suffix, not a child
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return ""
    held = (line.split() for line in lines if f":{inode} " in line and " WRITE " in line)
    pids = sorted({fields[4] for fields in held if fields[4] != str(os.getpid())})
    return f" by process {', '.join(pids)}" if pids else ""

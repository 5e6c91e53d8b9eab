"""Connections to the file, and SQLite's errors in our words."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

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

OLDEST = (3, 38, 0)
WAL_FIX = (3, 51, 3)

_LOCKED = StoreBusy, "{path} stayed locked{by}; end that, or wait longer"
_WRITE = (
    StoreReadOnly,
    "{path} or its folder cannot be written; check its permissions: who may write there?",
)
_MEANINGS: dict[int, tuple[type[OperatorError], str]] = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: _WRITE,
    sqlite3.SQLITE_PERM: _WRITE,
    sqlite3.SQLITE_FULL: (
        StoreFull,
        "no space left for {path}; nothing was written. Make room and try again",
    ),
    sqlite3.SQLITE_NOTADB: (ForeignStore, "{path} is not a SQLite database; choose another file"),
    sqlite3.SQLITE_CANTOPEN: (
        StoreCorrupt,
        "{path} cannot be opened; does its folder exist, and may you write there?",
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
    factory: type[C] = sqlite3.Connection,  # type: ignore[assignment]  # what most want
) -> C:
    """A connection with our pragmas: foreign keys, full sync, scratch space in memory."""
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
    scratch = connection.cursor()
    run(scratch, "schema.scratch_picked")
    run(scratch, "schema.scratch_changes")
    run(scratch, "schema.scratch_finished")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours, each saying what, which file and what now."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error


def translate(error: sqlite3.Error, path: Path) -> OutlastError:
    """The error of ours that says what SQLite's means to whoever runs the machine."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_CANTOPEN and path.parent.is_dir() and not _may_write(path.parent):
        code = sqlite3.SQLITE_READONLY
    kind, text = _MEANINGS.get(code, (OperatorError, "{path}: {error}"))
    by = _lock_owner(path) if kind is StoreBusy else ""
    return kind(text.format(path=path, error=error, by=by))


def require_writable(path: Path) -> None:
    """Before SQLite looks: it would leave files beside one that it may only read."""
    if os.access(path, os.F_OK) and not _may_write(path):
        raise StoreReadOnly(_WRITE[1].format(path=path))


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def require_version() -> None:
    """Refuse a SQLite library that lacks what the statements use."""
    if sqlite3.sqlite_version_info < OLDEST:
        need = ".".join(map(str, OLDEST))
        raise OperatorError(
            f"Python's SQLite library is {sqlite3.sqlite_version}; Outlast needs {need} or newer"
        )


def health_warnings(version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> list[str]:
    """What an operator should know about this SQLite library; empty when all is well."""
    if version < WAL_FIX:
        have, fixed = ".".join(map(str, version)), ".".join(map(str, WAL_FIX))
        text = (
            f"SQLite {have} has a rare fault when several connections use one WAL file at the "
            f"moment it is reset; it is mended in {fixed}. Upgrade when your system offers it."
        )
        return [text]
    return []


def _lock_owner(path: Path) -> str:
    """Which process holds the write lock, where the system tells; opening the file would not do:
    closing it again drops every lock this process has on it."""
    try:
        inode = os.stat(f"{path}-shm").st_ino  # noqa: PTH116 - a suffix, not a child
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return ""
    held = (line.split() for line in lines if f":{inode} " in line and " WRITE " in line)
    pids = sorted({fields[4] for fields in held if fields[4] != str(os.getpid())})
    return f" by process {', '.join(pids)}" if pids else ""

"""Modes of the files of a store: a new database is its owner's alone, its other files follow it.

SQLite gives `-wal` and `-shm` the mode of the database. Lock files do the same here, so that the
users who share a database by its mode also share its locks.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
_READ_BITS: Final = 0o444


def create_private(path: Path) -> None:
    """Create the file with mode 0600; an existing one is left alone. SQLite reports errors.

    An existing file must not even be opened: closing it would release the POSIX locks that other
    connections of this process hold on it, and another process could then delete the log.
    """
    flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with suppress(OSError):
        os.close(os.open(path, flags, PRIVATE))


def file_mode(database: Path) -> int:
    """Return the mode of a new file beside the database: who may read and write that one."""
    try:
        return database.stat().st_mode & 0o666
    except OSError:
        return PRIVATE


def folder_mode(database: Path) -> int:
    """Return the mode of a new folder beside the database: open to those who may read that one."""
    mode = file_mode(database)
    return mode | ((mode & _READ_BITS) >> 2)


def permission_warnings(path: Path) -> Iterator[str]:
    """Yield a warning for each file of the store that every user may read or write."""
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        try:
            mode = file.stat().st_mode
        except OSError:
            continue
        if mode & stat.S_IWOTH:
            yield f"every user of this machine may write {file}; forbid it: chmod o-rw {file}"
        elif mode & stat.S_IROTH:
            yield f"every user of this machine may read {file}; forbid it: chmod o-r {file}"

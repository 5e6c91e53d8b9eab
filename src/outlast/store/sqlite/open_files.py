"""Detects that the files of an open store were removed, because SQLite itself does not notice."""

import os
import sqlite3
from pathlib import Path

from outlast.errors import StoreCorrupt


class OpenFiles:
    """The database file and its write-ahead log, as a connection opened them."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Remember the files; the read makes SQLite open the log."""
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        self._path = path
        self._log = f"{path}-wal"
        self._database_identity = _identity(path)
        self._log_identity = _identity(self._log)

    def require_database(self) -> None:
        """Refuse to write to a deleted file, whose writes would be lost."""
        if _identity(self._path) != self._database_identity:
            raise StoreCorrupt(
                f"{self._path} was removed or replaced after it was opened, and nothing was "
                "written; put the file back, or restart every process that uses it"
            )

    def require_log(self) -> None:
        """Raise after a commit that went into a deleted log, so that it is not acknowledged."""
        if _identity(self._log) != self._log_identity:
            raise StoreCorrupt(
                f"{self._log} was removed or replaced while the store was open, and what was "
                "written is lost; restart every process that uses the store"
            )


def _identity(path: Path | str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - cheaper, and this runs at every commit
    except OSError:
        return None
    return found.st_dev, found.st_ino

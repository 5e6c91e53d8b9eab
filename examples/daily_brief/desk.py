"""The desk: the database file of the brief, and transactions on it."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

Probe = Callable[[str, bool], None]
"""Called with a statement's name before (False) and after (True) it runs; for tests."""

LOCK_TIMEOUT_S: Final = 30.0
"""Seconds to wait for a lock of another process."""


class Tx:
    """One transaction: `tx.run("link", cluster=3, article=7)`."""

    def __init__(self, connection: sqlite3.Connection, probe: Probe | None) -> None:
        self._connection = connection
        self._probe = probe

    def run(self, name: str, /, **values: Any) -> sqlite3.Cursor:
        """Run a named statement with bound values."""
        if self._probe is not None:
            self._probe(name, False)
        cursor = self._connection.execute(statements()[name], values)
        if self._probe is not None:
            self._probe(name, True)
        return cursor


class Desk:
    """Articles, clusters, briefs and S0's `job_runs`, in one SQLite file with Outlast's tables.

    It keeps no connection: each transaction opens its own, so any thread and process may use it.
    """

    def __init__(self, path: Path, *, probe: Probe | None = None) -> None:
        self.path: Final = path
        self._probe = probe

    @contextmanager
    def writing(self) -> Iterator[Tx]:
        """Open a transaction: committed at the end of the block, rolled back by an exception."""
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield Tx(connection, self._probe)
            connection.execute("COMMIT")  # otherwise closing it undoes everything

    @contextmanager
    def reading(self) -> Iterator[Tx]:
        """Open a read transaction: all statements see one snapshot."""
        with closing(self._connect()) as connection:
            connection.execute("BEGIN")
            yield Tx(connection, self._probe)

    def create_job_runs(self) -> None:
        """Create the view `job_runs`; Outlast's tables exist. Idempotent."""
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _split(_read("job_runs.sql")):
                connection.execute(statement)
            connection.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=LOCK_TIMEOUT_S, isolation_level=None)
        try:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA foreign_keys = 1")
            if not _version(connection):
                _create(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def stamp(moment: datetime) -> str:
    """Format a time as the tables store it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str) -> datetime:
    """Parse the result of `stamp`."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


@cache
def statements() -> Mapping[str, str]:
    """Read the statements; the name of each follows `-- @` in the line above it."""
    _, *parts = _read("statements.sql").split("-- @")
    return dict(part.split("\n", 1) for part in parts)


def _version(connection: sqlite3.Connection) -> int:
    [(version,)] = connection.execute("PRAGMA user_version")
    return int(version)


def _create(connection: sqlite3.Connection) -> None:
    """Create the tables once, safely if several processes do so at a time."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    if not _version(connection):
        for statement in _split(_read("tables.sql")):
            connection.execute(statement)
    connection.execute("COMMIT")


def _read(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


def _split(script: str) -> Iterator[str]:
    # Not `executescript`, which would commit before it begins.
    part = ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            yield part
            part = ""

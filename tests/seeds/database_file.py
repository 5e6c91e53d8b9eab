"""The SQLite file of a test: read and written with SQL, copied, opened as a store."""

import sqlite3
from pathlib import Path
from typing import Any

from outlast.store.sqlite.store import SqliteStore
from support.crash.sqlite_target import dump

from .timeouts import PATIENCE


class Sql:
    """The file as an outsider with SQL sees it: only what is committed, nothing of our memory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def value(self, query: str, *values: Any) -> Any:
        [(value,)] = self.rows(query, *values)
        return value

    def write(self, *statements: str) -> None:
        """All of them in one transaction."""
        connection = self.connect()
        try:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")
        finally:
            connection.close()

    def expire_leases(self) -> None:
        """The leases of all that runs are over now; call it when nobody renews them any more."""
        self.write("UPDATE outlast_open_runs SET lease_until = 0")

    def refuses(self, *statements: str) -> str:
        """What the database says against them; AssertionError if it takes them."""
        before = dump(self.path)
        try:
            self.write(*statements)
        except sqlite3.IntegrityError as refusal:
            assert dump(self.path) == before
            return str(refusal)
        raise AssertionError(f"the database took it: {statements}")

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=PATIENCE)
        connection.execute("PRAGMA foreign_keys = 1")
        return connection


def copy_of(path: Path, to: Path) -> Path:
    """The file with all that is committed in it, elsewhere."""
    source, target = sqlite3.connect(path), sqlite3.connect(to)
    source.backup(target)
    for connection in (source, target):
        connection.close()
    return to


async def opened(path: Path, **options: Any) -> SqliteStore:
    store = SqliteStore(path, **options)
    await store.open()
    return store


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


class Witness:
    """A store's probe that looks at what is committed, before and after every statement."""

    def __init__(self, path: Path, query: str) -> None:
        self.seen: list[list[tuple[Any, ...]]] = []
        self._sql = Sql(path)
        self._query = query

    def __call__(self, _name: str, _after: bool) -> None:
        try:
            found = self._sql.rows(self._query)
        except sqlite3.OperationalError:  # the tables are not there yet
            return
        if found not in self.seen:
            self.seen.append(found)

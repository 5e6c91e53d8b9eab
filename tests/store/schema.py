"""What the schema really says, read from the migrations themselves."""

import sqlite3
from dataclasses import dataclass

from outlast.store.sqlite.migrate import migrations


@dataclass(frozen=True, slots=True)
class Column:
    """One column of one table."""

    table: str
    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.table}.{self.name}"

    @property
    def update(self) -> str:
        """A statement that gives the column another value in the row `:row` is about."""
        was = f"coalesce({self.name}, 0) + 1" if self.type == "INTEGER" else f"{self.name} || 'x'"
        other = was if self.type == "INTEGER" else f"coalesce({was}, 'x')"
        return f"UPDATE {self.table} SET {self.name} = {other}"  # noqa: S608 - our own names


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key."""

    table: str
    column: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column}"


def columns(table: str) -> list[Column]:
    """All of a table's columns, also those that nobody has thought about yet."""
    return [Column(table, name, kind) for _, name, kind, *_ in _ask(f"PRAGMA table_info({table})")]


def references() -> list[Reference]:
    """Every foreign key there is."""
    tables = [name for (name,) in _ask("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return [
        Reference(table, row[3])
        for table in sorted(tables)
        for row in _ask(f"PRAGMA foreign_key_list({table})")
    ]


def names(kind: str) -> list[str]:
    """The names of all tables, indexes or triggers of ours."""
    found = _ask(f"SELECT name FROM sqlite_schema WHERE type = '{kind}' ORDER BY name")  # noqa: S608 - our own words
    return [name for (name,) in found if name.startswith("outlast_")]


def _ask(question: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(":memory:")
    try:
        for script in migrations().values():
            connection.executescript(script)
        return connection.execute(question).fetchall()
    finally:
        connection.close()

"""Named SQL statements with the placeholders of the drivers: `:name` to `$1` and `%(name)s`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

Probe = Callable[[str, bool], None]
"""Called with a statement's name before (False) and after (True) it runs; used by crash tests."""

TRANSACTION = {
    # READ COMMITTED, whatever the server's default: a statement after a lock must see what the
    # former holder of the lock committed.
    "unit_of_work.begin": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "unit_of_work.commit": "COMMIT",
    "unit_of_work.rollback": "ROLLBACK",
}

SCHEMA = "outlast"
"""The schema that the SQL files name; `in_schema` replaces it."""

_NAME = re.compile(r"(?<!:):([a-z_]+)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: `text` with numbered placeholders for asyncpg, in the order of `names`.

    `named` is the same statement for psycopg.
    """

    text: str
    names: tuple[str, ...]
    named: str

    def bind(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the values in the order of the numbered placeholders."""
        return [values[name] for name in self.names]


@cache
def statements(schema: str = SCHEMA) -> Mapping[str, Statement]:
    """Return every statement by name: file name, dot, and the word after `-- @` above it."""
    folder = resources.files(__package__) / "sql"
    found = dict(TRANSACTION)
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            found.update(_split(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")))
    return {name: _statement(in_schema(text, schema)) for name, text in found.items()}


def in_schema(text: str, schema: str) -> str:
    """Return the SQL with that schema; its name was checked when the URL was parsed."""
    return re.sub(rf"\b{SCHEMA}(?=\.[a-z])|(?<=IF NOT EXISTS ){SCHEMA}\b", f'"{schema}"', text)


def _statement(text: str) -> Statement:
    names = tuple(dict.fromkeys(_NAME.findall(text)))
    numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
    numbered = _NAME.sub(lambda found: numbers[found[1]], text)
    return Statement(numbered, names, _NAME.sub(r"%(\1)s", text.replace("%", "%%")))


def _split(file: str, text: str) -> dict[str, str]:
    _, *parts = text.split("-- @")
    pairs = (part.split("\n", 1) for part in parts)
    return {f"{file}.{name.strip()}": _without_comments(body) for name, body in pairs}


def _without_comments(body: str) -> str:
    """Return the SQL without comments, in which a colon would read as a placeholder."""
    lines = (line for line in body.strip().splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(line.split(" -- ", 1)[0].rstrip() for line in lines).rstrip("; \n")

"""The SQL, read from the files beside this one, with its names turned into a driver's marks."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

Probe = Callable[[str, bool], None]
"""Called with a statement's name, before (False) and after (True) it runs; tests kill there."""

TRANSACTION = {
    "unit_of_work.begin": "BEGIN",
    "unit_of_work.commit": "COMMIT",
    "unit_of_work.rollback": "ROLLBACK",
}

SCHEMA = "outlast"
"""The schema that the files name; another one takes its place word for word."""

_NAME = re.compile(r"(?<!:):([a-z_]+)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: `text` numbers its values as asyncpg wants them, `names` says in which order.

    `named` is the same for psycopg.
    """

    text: str
    names: tuple[str, ...]
    named: str

    def bind(self, values: Mapping[str, Any]) -> list[Any]:
        return [values[name] for name in self.names]


@cache
def statements(schema: str = SCHEMA) -> Mapping[str, Statement]:
    """Every statement by its name: the file's, a dot, and the words after `-- @` above it."""
    folder = resources.files(__package__) / "sql"
    found = dict(TRANSACTION)
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            found.update(_named(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")))
    return {name: _statement(in_schema(text, schema)) for name, text in found.items()}


def in_schema(text: str, schema: str) -> str:
    """The same SQL for our tables in that schema, whose name was checked when the URL was read."""
    return re.sub(rf"\b{SCHEMA}(?=\.[a-z])|(?<=IF NOT EXISTS ){SCHEMA}\b", f'"{schema}"', text)


def _statement(text: str) -> Statement:
    names = tuple(dict.fromkeys(_NAME.findall(text)))
    numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
    numbered = _NAME.sub(lambda found: numbers[found[1]], text)
    return Statement(numbered, names, _NAME.sub(r"%(\1)s", text.replace("%", "%%")))


def _named(file: str, text: str) -> dict[str, str]:
    _, *parts = text.split("-- @")
    split = (part.split("\n", 1) for part in parts)
    return {f"{file}.{name.strip()}": _bare(body) for name, body in split}


def _bare(body: str) -> str:
    """Without comments, in which a colon would look like a name."""
    lines = (line for line in body.strip().splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(line.split(" -- ", 1)[0].rstrip() for line in lines).rstrip("; \n")

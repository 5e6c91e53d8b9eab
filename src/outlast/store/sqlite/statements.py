"""The SQL, read from the files beside this one, and the one function that runs it."""

import sqlite3
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

Probe = Callable[[str, bool], None]
"""Called with a statement's name, before (False) and after (True) it runs; tests kill there."""

TRANSACTION = {
    "unit_of_work.begin": "BEGIN IMMEDIATE",
    "unit_of_work.commit": "COMMIT",
    "unit_of_work.rollback": "ROLLBACK",
}


@cache
def statements() -> Mapping[str, str]:
    """Every statement by its name: the file's, a dot, and the words after `-- @` above it."""
    folder = resources.files(__package__) / "sql"
    found = dict(TRANSACTION)
    for file in folder.iterdir():
        if file.name.endswith(".sql"):
            found.update(_named(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")))
    return found


def run(
    cursor: sqlite3.Cursor, name: str, probe: Probe | None = None, /, **values: Any
) -> sqlite3.Cursor:
    """Run the statement of that name with bound values."""
    if probe is None:
        return cursor.execute(statements()[name], values)
    probe(name, False)
    cursor.execute(statements()[name], values)
    probe(name, True)
    return cursor


def _named(file: str, text: str) -> dict[str, str]:
    _, *parts = text.split("-- @")
    split = (part.split("\n", 1) for part in parts)
    return {f"{file}.{name.strip()}": _bare(body) for name, body in split}


def _bare(body: str) -> str:
    # Without leading comments, so that Python sees an INSERT as one and begins a transaction.
    lines = (line for line in body.strip().splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines)

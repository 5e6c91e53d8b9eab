"""The named SQL statements of the SQLite store, and the function that runs one."""

import sqlite3
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from outlast.store.sql_files import Probe, load_statements

__all__ = ["TRANSACTION", "Probe", "run", "statements"]

TRANSACTION: Final = {
    "unit_of_work.begin": "BEGIN IMMEDIATE",
    "unit_of_work.commit": "COMMIT",
    "unit_of_work.rollback": "ROLLBACK",
}


@cache
def statements() -> Mapping[str, str]:
    """Return every statement of the `sql` folder by name, and those that frame a transaction."""
    return TRANSACTION | load_statements(__package__)


def run(
    cursor: sqlite3.Cursor, name: str, probe: Probe | None = None, /, **values: Any
) -> sqlite3.Cursor:
    """Execute the statement of that name with bound values and return the cursor."""
    if probe is None:
        return cursor.execute(statements()[name], values)
    probe(name, False)
    cursor.execute(statements()[name], values)
    probe(name, True)
    return cursor

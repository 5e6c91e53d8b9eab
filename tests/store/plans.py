"""How SQLite would run a statement: which indexes it uses, and what it walks from end to end."""

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.store.sqlite.statements import statements

WALKS = {"Rewind", "Last", "Sort"}
OPENS = {"OpenRead", "OpenWrite", "ReopenIdx"}
MAIN = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a statement touches in the file; scratch tables are left out."""

    uses: frozenset[str]  # as EXPLAIN QUERY PLAN tells it
    walked: frozenset[str]  # tables gone through whole, by themselves or by one of their indexes


def plan(connection: sqlite3.Connection, name: str) -> Plan:
    """The plan of the statement of that name, as this connection would run it now."""
    text = statements()[name]
    values = dict.fromkeys(re.findall(r":(\w+)", text), 1)
    told = connection.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    program = connection.execute(f"EXPLAIN {text}", values).fetchall()
    uses = frozenset(detail for *_, detail in told)
    return Plan(uses, frozenset(_walked(program, _roots(connection))))


def _roots(connection: sqlite3.Connection) -> dict[int, str]:
    """Whose each tree of the file is: a table's, or that of the table an index belongs to."""
    found = connection.execute("SELECT rootpage, tbl_name FROM main.sqlite_schema")
    return {page: table for page, table in found if page}


def _walked(program: list[tuple[object, ...]], roots: dict[int, str]) -> Iterator[str]:
    """Tables with a cursor that is put to the start, or the end, to go through all of it.

    A search seeks instead. Programs of triggers follow the first one and number anew.
    """
    cursors: dict[object, str] = {}
    for address, opcode, p1, p2, p3, *_ in program:
        if address == 0:
            cursors = {}
        if opcode in OPENS and p3 == MAIN and p2 in roots:
            cursors[p1] = roots[p2]  # type: ignore[index]
        if opcode in WALKS and p1 in cursors:
            yield cursors[p1]

"""How SQLite would run a statement: which indexes it uses, and what it walks from end to end."""

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from outlast.store.sqlite.statements import statements

WALKS = {"Rewind", "Last"}
BOUNDS = {"IdxGT", "IdxGE", "IdxLT", "IdxLE"}
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
    reported = connection.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    program = connection.execute(f"EXPLAIN {text}", values).fetchall()
    uses = frozenset(detail for *_, detail in reported)
    return Plan(uses, frozenset(_walked(program, _roots(connection))))


def _roots(connection: sqlite3.Connection) -> dict[int, str]:
    """Whose each tree of the file is: a table's, or that of the table an index belongs to."""
    found = connection.execute("SELECT rootpage, tbl_name FROM main.sqlite_schema")
    return {page: table for page, table in found if page}


def _walked(program: list[tuple[Any, ...]], roots: dict[int, str]) -> Iterator[str]:
    """Tables with a cursor that is put to one end to go through all of it, without a bound.

    A search seeks instead, or has a bound. Programs of triggers follow the first one, and begin
    again at address 0 with cursors of their own.
    """
    for part in _programs(program):
        whose = {p1: roots.get(p2) for op, p1, p2, p3 in part if op in OPENS and p3 == MAIN}
        bounded = {p1 for op, p1, *_ in part if op in BOUNDS}
        walking = {p1 for op, p1, *_ in part if op in WALKS} - bounded
        yield from (table for cursor in walking if (table := whose.get(cursor)))


def _programs(program: list[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    starts = [n for n, (address, *_) in enumerate(program) if address == 0]
    for start, end in pairwise([*starts, len(program)]):
        yield [row[1:5] for row in program[start:end]]

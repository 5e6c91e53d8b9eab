"""How PostgreSQL would run a statement: which indexes it uses, and what it walks from end to end."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.store.postgres.statements import statements

from .pg_worlds import GROUP, JOB

SAMPLES: Final[Mapping[str, str]] = {
    "uuid": f"'{JOB}'",
    "uuid[]": f"ARRAY['{JOB}']::uuid[]",
    "text": "'queue-2'",
    "text[]": "ARRAY['queued']::text[]",
    "bigint": "100",
    "bigint[]": "ARRAY[100]::bigint[]",
    "integer": "1",
    "integer[]": "ARRAY[1]::integer[]",
    "smallint": "0",
    "smallint[]": "ARRAY[0]::smallint[]",
    "boolean": "true",
    "boolean[]": "ARRAY[true]::boolean[]",
    "jsonb": "'{}'",
    "json": "'{}'",
    "json[]": "ARRAY['{}']::json[]",
}
"""A value for each type that a statement is asked with."""

NAMED: Final[Mapping[str, str]] = {
    "grp": f"'{GROUP}'",
    "group": f"'{GROUP}'",
    "states": "ARRAY['queued', 'running', 'failed']::text[]",
    "now": "1000",
}
"""And for those names whose value makes a difference."""

MODES: Final = ("force_generic_plan", "force_custom_plan")
"""A statement is planned anew for its values the first few times, and then for any."""


@dataclass(slots=True)
class Plan:
    """What a statement does to our tables."""

    uses: set[str] = field(default_factory=set)  # index, and the condition it is searched by
    walked: set[str] = field(default_factory=set)  # tables gone through whole, or by a whole index


class Planner:
    """Asks a connection of ours, with its settings."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        self._statements = statements(schema)
        self._schema = schema

    async def plan(self, name: str) -> Plan:
        """What both ways of planning it come to."""
        plan = Plan()
        for mode in MODES:
            told = await self._explained(name, mode)
            for top in told:
                _gather(top["Plan"], plan)
        return plan

    async def _explained(self, name: str, mode: str) -> list[dict[str, Any]]:
        statement = self._statements[name]
        values = ", ".join(_samples(statement.text, len(statement.names), statement.names))
        given = f"({values})" if values else ""
        await self._connection.execute(f"SET plan_cache_mode = {mode}")
        await self._connection.execute(f"PREPARE asked AS {statement.text}")
        try:
            text = await self._connection.fetchval(
                f"EXPLAIN (FORMAT JSON) EXECUTE asked{given}"  # noqa: S608 - ours
            )
        finally:
            await self._connection.execute("DEALLOCATE asked")
        told: list[dict[str, Any]] = json.loads(text)
        return told


def _samples(text: str, count: int, names: tuple[str, ...]) -> Iterator[str]:
    for number, name in zip(range(1, count + 1), names, strict=True):
        found = re.search(rf"\${number}::([a-z]+(?:\[\])?)", text)
        assert found is not None, f":{name} has no type: write :{name}::…"
        yield NAMED.get(name) or SAMPLES[found[1]]


def _gather(node: dict[str, Any], plan: Plan) -> None:
    kind = node["Node Type"]
    table = node.get("Relation Name") or _table(node.get("Index Name", ""))
    if kind == "Seq Scan":
        plan.walked.add(table)
    elif kind in ("Index Scan", "Index Only Scan", "Bitmap Index Scan"):
        condition = node.get("Index Cond")
        plan.uses.add(f"{node['Index Name']} {condition or 'whole'}")
        if condition is None:
            plan.walked.add(table)
    for child in node.get("Plans", []):
        _gather(child, plan)


def _table(index: str) -> str:
    """Whose index that is: those of a bitmap name no table."""
    starts = {"open": "open_runs"}
    start = index.split("_")[0]
    return starts.get(start, start)

"""How PostgreSQL would run a statement: which indexes it uses, and what it walks whole."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from outlast.store.postgres.placeholders import Statement, statements

from .pg_worlds import GROUP, JOB

SAMPLES: Final[Mapping[str, str]] = {
    "uuid": f"'{JOB}'",
    "text": "'queue-2'",
    "bigint": "100",
    "integer": "1",
    "smallint": "0",
    "boolean": "true",
    "double": "1.5",
    "bytea": r"'\x00'",
    "json": "'{}'",
    "jsonb": "'{}'",
}
"""A value for each type that a statement is asked with."""

NAMED: Final[Mapping[str, str]] = {
    "xid": "'7'",
    "group_id": f"'{GROUP}'",
    "group": f"'{GROUP}'",
    "states": "ARRAY['queued', 'running', 'failed']::text[]",
    "now": "1000",
    "token_list": "'1'",
    "artifacts": "'[]'",
    "tokens": "'1'",
    "prefix": "'00000000-0000-7000-8000-000000'",
}
"""And for those names whose value makes a difference."""

UUIDS: Final = re.compile(r"^(id|ids|jobs|predecessors|retries|roots|successors|.*_jobs|.*_ids)$")
"""Names of texts that a statement turns into UUIDs itself."""

MODES: Final = ("force_generic_plan", "force_custom_plan")
"""A statement is planned anew for its values the first few times, and then for any."""

SCANS: Final = ("Index Scan", "Index Only Scan", "Bitmap Index Scan")


@dataclass(slots=True)
class Plan:
    """What a statement does to our tables."""

    uses: set[str] = field(default_factory=set)  # index, and the condition it is searched by
    walked: set[str] = field(default_factory=set)  # tables gone through whole, or by a whole index
    sorts: bool = False


class Planner:
    """Asks a connection of ours, with its settings."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        self._statements = statements(schema)
        self._tables: dict[str, str] = {}

    async def plan(self, name: str) -> Plan:
        """What both ways of planning it come to."""
        if not self._tables:
            found = await self._connection.fetch("SELECT indexname, tablename FROM pg_indexes")
            self._tables = dict(map(tuple, found))
        plan = Plan()
        for mode in MODES:
            for top in await self._explained(self._statements[name], mode):
                self._gather(top["Plan"], plan)
                plan.sorts = plan.sorts or "Sort" in json.dumps(top)
        return plan

    async def _explained(self, statement: Statement, mode: str) -> list[dict[str, Any]]:
        values = ", ".join(samples(statement))
        given = f"({values})" if values else ""
        await self._connection.execute(f"SET plan_cache_mode = {mode}")
        await self._connection.execute(f"PREPARE asked AS {statement.text}")
        try:
            explain = f"EXPLAIN (FORMAT JSON) EXECUTE asked{given}"
            text = await self._connection.fetchval(explain)
        finally:
            await self._connection.execute("DEALLOCATE asked")
        reported: list[dict[str, Any]] = json.loads(text)
        return reported

    def _gather(self, node: dict[str, Any], plan: Plan) -> None:
        kind = node["Node Type"]
        if kind == "Seq Scan":
            plan.walked.add(node["Relation Name"])
        elif kind in SCANS:
            index, condition = node["Index Name"], node.get("Index Cond")
            plan.uses.add(f"{index} {condition or 'whole'}")
            if condition is None:
                plan.walked.add(self._tables[index])
        for child in node.get("Plans", []):
            self._gather(child, plan)


def samples(statement: Statement) -> Iterator[str]:
    """A value for each of its marks, in their order."""
    for number, name in enumerate(statement.names, 1):
        found = re.search(rf"\${number}::([a-z]+)(\[\])?", statement.text)
        assert found is not None, f":{name} has no type: write :{name}::…"
        kind, many = found[1], found[2]
        one = SAMPLES["uuid" if kind == "text" and UUIDS.match(name) else kind]
        one = NAMED.get(name, one)
        yield f"ARRAY[{one}]::{kind}[]" if many and "ARRAY" not in one else one

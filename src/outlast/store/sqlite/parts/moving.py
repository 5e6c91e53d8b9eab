"""Moving a store: how it stands, everything it holds, and holding what another one held."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from outlast.store.contract.transfer import (
    COLUMNS,
    FIRST,
    Footing,
    Kind,
    Row,
    Step,
    from_row,
    plain,
)
from outlast.store.sqlite import verbs
from outlast.store.sqlite.operations.base import Asking

READS: Final[Mapping[Kind, str]] = {
    Kind.QUEUES: "copy.queues",
    Kind.GROUPS: "copy.groups",
    Kind.KEYS: "copy.keys",
    Kind.SLOTS: "copy.slots",
    Kind.SCHEDULES: "copy.schedules",
    Kind.RECORDS: "copy.records",
    Kind.JOBS: "copy.jobs",
    Kind.RUNS: "copy.runs",
    Kind.EVENTS: "copy.events",
    Kind.RESERVATIONS: "copy.reservations",
    Kind.COUNTERS: "copy.counters",
}


class SqliteMoving(Asking):
    """Moving a store."""

    async def footing(self) -> Footing:
        found = await self._reader.rows("footing.get")
        return from_row(found[0] if found else None).at(self._clock.now())

    async def stand(self, step: Step) -> bool:
        # One writer: whatever began before it is written.
        taken: bool = (await self._writer.ask(verbs.stand, [step]))[0]
        return taken

    async def dump(
        self, kind: Kind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        key = FIRST[kind] if after is None else after
        asked: dict[str, Any] = dict(zip(COLUMNS[kind], key, strict=False))
        if kind is Kind.JOBS:
            asked["ended_only"] = ended_only
        found = await self._reader.rows(READS[kind], limit=limit, **asked)
        return [plain(kind, row) for row in found]

    async def load(self, kind: Kind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        if rows or gone:
            await self._writer.ask(verbs.load, [(kind, rows, gone)])

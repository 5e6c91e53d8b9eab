"""Moving a store: how it stands, everything it holds, and holding what another one held."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from outlast.store.contract.transfer import (
    COLUMNS,
    FIRST,
    Row,
    StatusChange,
    TableKind,
    TransferStatus,
    from_row,
    plain,
)
from outlast.store.sqlite import verbs
from outlast.store.sqlite.operations.base import SqliteOperations

READS: Final[Mapping[TableKind, str]] = {
    TableKind.QUEUES: "copy.queues",
    TableKind.GROUPS: "copy.groups",
    TableKind.KEYS: "copy.keys",
    TableKind.SLOTS: "copy.slots",
    TableKind.SCHEDULES: "copy.schedules",
    TableKind.RECORDS: "copy.records",
    TableKind.JOBS: "copy.jobs",
    TableKind.RUNS: "copy.runs",
    TableKind.EVENTS: "copy.events",
    TableKind.RESERVATIONS: "copy.reservations",
    TableKind.COUNTERS: "copy.counters",
}


class SqliteMoving(SqliteOperations):
    """Moving a store."""

    async def transfer_status(self) -> TransferStatus:
        found = await self._reader.rows("footing.get")
        return from_row(found[0] if found else None).at(self._clock.now())

    async def change_transfer_status(self, step: StatusChange) -> bool:
        # One writer: whatever began before it is written.
        taken: bool = (await self._writer.submit(verbs.change_status, [step]))[0]
        return taken

    async def dump(
        self, kind: TableKind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        key = FIRST[kind] if after is None else after
        asked: dict[str, Any] = dict(zip(COLUMNS[kind], key, strict=False))
        if kind is TableKind.JOBS:
            asked["ended_only"] = ended_only
        found = await self._reader.rows(READS[kind], limit=limit, **asked)
        return [plain(kind, row) for row in found]

    async def load(self, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        if rows or gone:
            await self._writer.submit(verbs.load, [(kind, rows, gone)])

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
    TableKind.QUEUES: "transfer.queues",
    TableKind.GROUPS: "transfer.groups",
    TableKind.KEYS: "transfer.keys",
    TableKind.SLOTS: "transfer.slots",
    TableKind.SCHEDULES: "transfer.schedules",
    TableKind.DOCUMENTS: "transfer.documents",
    TableKind.JOBS: "transfer.jobs",
    TableKind.RUNS: "transfer.runs",
    TableKind.EVENTS: "transfer.events",
    TableKind.RESERVATIONS: "transfer.reservations",
    TableKind.COUNTERS: "transfer.counters",
}


class SqliteMoving(SqliteOperations):
    """Moving a store."""

    async def transfer_status(self) -> TransferStatus:
        found = await self._reader.rows("transfer_status.get")
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

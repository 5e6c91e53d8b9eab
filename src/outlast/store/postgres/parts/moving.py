"""Moving a store: how it stands, everything it holds, and holding what another one held."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
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
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.verbs.footing import stand
from outlast.store.postgres.verbs.loading import load

READS: Final[Mapping[TableKind, str]] = {
    TableKind.QUEUES: "transfer.queues",
    TableKind.GROUPS: "transfer.groups",
    TableKind.KEYS: "transfer.keys",
    TableKind.SLOTS: "transfer.slots",
    TableKind.SCHEDULES: "transfer.schedules",
    TableKind.RECORDS: "transfer.documents",
    TableKind.JOBS: "transfer.jobs",
    TableKind.RUNS: "transfer.runs",
    TableKind.EVENTS: "transfer.events",
    TableKind.RESERVATIONS: "transfer.reservations",
    TableKind.COUNTERS: "transfer.counters",
}


class PostgresMoving(PostgresOperations):
    """Moving a store."""

    async def transfer_status(self) -> TransferStatus:
        found = await self._lines.rows("transfer_status.get")
        if not found:
            return from_row(None)
        return from_row(tuple(found[0])).at(await self.now())

    async def change_transfer_status(self, step: StatusChange) -> bool:
        verb = partial(stand, step=step, schema=self.address.schema)
        return await self._lines.transact(verb)

    async def dump(
        self, kind: TableKind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        key = FIRST[kind] if after is None else after
        asked: dict[str, Any] = dict(zip(COLUMNS[kind], key, strict=False))
        asked |= {"ended_only": ended_only, "limit": limit}
        found = await self._lines.rows(READS[kind], **asked)
        return [plain(kind, tuple(row)) for row in found]

    async def load(self, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        if rows or gone or kind is TableKind.COUNTERS:  # which rise with the rows
            verb = partial(load, kind=kind, rows=rows, gone=gone)
            await self._lines.transact(verb)

    async def now(self) -> datetime:
        raise NotImplementedError

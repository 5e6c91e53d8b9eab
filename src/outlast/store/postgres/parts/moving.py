"""Moving a store: how it stands, everything it holds, and holding what another one held."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
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
from outlast.store.postgres.operations.base import Asking
from outlast.store.postgres.verbs.footing import stand
from outlast.store.postgres.verbs.loading import load

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


class PostgresMoving(Asking):
    """Moving a store."""

    async def footing(self) -> Footing:
        found = await self._lines.rows("footing.get")
        if not found:
            return from_row(None)
        return from_row(tuple(found[0])).at(await self.now())

    async def stand(self, step: Step) -> bool:
        verb = partial(stand, step=step, schema=self.address.schema)
        return await self._lines.transact(verb)

    async def dump(
        self, kind: Kind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        key = FIRST[kind] if after is None else after
        asked: dict[str, Any] = dict(zip(COLUMNS[kind], key, strict=False))
        asked |= {"ended_only": ended_only, "limit": limit}
        found = await self._lines.rows(READS[kind], **asked)
        return [plain(kind, tuple(row)) for row in found]

    async def load(self, kind: Kind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        if rows or gone or kind is Kind.COUNTERS:  # which rise with the rows
            verb = partial(load, kind=kind, rows=rows, gone=gone)
            await self._lines.transact(verb)

    async def now(self) -> datetime:
        raise NotImplementedError

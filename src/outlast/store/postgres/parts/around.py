"""Who works, small documents, and what `verify` asks."""

from datetime import timedelta
from functools import partial

from outlast.core.audit.model import Dossier, Stray
from outlast.core.document import Record, Swap, check_swap
from outlast.core.duration import MICROSECOND
from outlast.core.run import Holder
from outlast.core.worker import WorkerInfo, WorkerRecord
from outlast.store.postgres.operations.base import Asking
from outlast.store.postgres.verbs import record, worker
from outlast.store.postgres.verbs.footing import while_open
from outlast.store.rows import audit
from outlast.store.rows import jobs as job_rows


class PostgresAround(Asking):
    """Who works, small documents, and what `verify` asks."""

    async def record(self, kind: str, key: str) -> Record | None:
        found = await self._lines.rows("record.get", kind=kind, key=key)
        return job_rows.record(tuple(found[0])) if found else None

    async def records(self, kind: str) -> list[Record]:
        found = await self._lines.rows("record.all", kind=kind)
        return [job_rows.record(tuple(row)) for row in found]

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Record | None:
        wish = check_swap(Swap(kind=kind, key=key, expected=expected, value=value))
        return await self._lines.transact(while_open(partial(record.swap, wish=wish)))

    async def enlist(self, worker_info: WorkerInfo) -> None:
        await self._lines.transact(partial(worker.enlist, worker=worker_info))

    async def beat(self, holder: Holder, *, span: timedelta) -> bool:
        beaten = await self._lines.rows(
            "worker.beat",
            now=self._now,
            mono=self._mono,
            span=span // MICROSECOND,
            **worker.who(holder),
        )
        return bool(beaten)

    async def retire(self, holder: Holder) -> None:
        await self._lines.transact(partial(worker.retire, holder=holder))

    async def workers(self) -> list[WorkerRecord]:
        found = await self._lines.rows("worker.list", mono=self._mono)
        return [job_rows.worker(tuple(row)) for row in found]

    async def size(self) -> int:
        [(number,)] = await self._lines.rows("audit.size")
        return int(number)

    async def dossiers(self, *, after: int, limit: int) -> list[Dossier]:
        found = await self._lines.rows("audit.dossiers", after=after, limit=limit)
        return [audit.dossier(tuple(row)) for row in found]

    async def strays(self, *, limit: int) -> list[Stray]:
        pages = [await self._lines.rows(name, limit=limit) for name in audit.STRAYS]
        return [audit.stray(tuple(row)) for page in pages for row in page]

"""Who works, small documents, and what `verify` asks."""

from datetime import timedelta

from outlast.core.audit.model import Dossier, Stray
from outlast.core.document import Record, Swap, check_swap
from outlast.core.run import Holder
from outlast.core.worker import WorkerInfo, WorkerRecord
from outlast.store.rows import audit
from outlast.store.rows import jobs as job_rows
from outlast.store.sqlite import verbs
from outlast.store.sqlite.operations.base import Asking


class SqliteAround(Asking):
    """Who works, small documents, and what `verify` asks."""

    async def record(self, kind: str, key: str) -> Record | None:
        found = await self._reader.rows("record.get", kind=kind, key=key)
        return job_rows.record(found[0]) if found else None

    async def records(self, kind: str) -> list[Record]:
        return [job_rows.record(row) for row in await self._reader.rows("record.all", kind=kind)]

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Record | None:
        wish = check_swap(Swap(kind=kind, key=key, expected=expected, value=value))
        swapped: Record | None = (await self._writer.ask(verbs.swap, [wish]))[0]
        return swapped

    async def enlist(self, worker: WorkerInfo) -> None:
        await self._writer.ask(verbs.enlist, [worker])

    async def beat(self, holder: Holder, *, span: timedelta) -> bool:
        alive: bool = (await self._writer.ask(verbs.beat, [(holder, span)]))[0]
        return alive

    async def retire(self, holder: Holder) -> None:
        await self._writer.ask(verbs.retire, [holder])

    async def workers(self) -> list[WorkerRecord]:
        found = await self._reader.rows("read.workers", mono=self._clock.monotonic())
        return [job_rows.worker(row) for row in found]

    async def size(self) -> int:
        [(number,)] = await self._reader.rows("audit.size")
        return int(number)

    async def dossiers(self, *, after: int, limit: int) -> list[Dossier]:
        found = await self._reader.rows("audit.dossiers", after=after, limit=limit)
        return [audit.dossier(row) for row in found]

    async def strays(self, *, limit: int) -> list[Stray]:
        pages = [await self._reader.rows(name, limit=limit) for name in audit.STRAYS]
        return [audit.stray(row) for page in pages for row in page]

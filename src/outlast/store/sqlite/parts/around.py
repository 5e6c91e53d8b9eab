"""Who works, small documents, and what `verify` asks."""

from datetime import timedelta

from outlast.core.audit.model import DanglingRecord, JobAudit
from outlast.core.document import Document, Swap, check_swap
from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerInfo, WorkerRecord
from outlast.store.rows import audit
from outlast.store.rows import jobs as job_rows
from outlast.store.sqlite import verbs
from outlast.store.sqlite.operations.base import SqliteOperations


class SqliteAround(SqliteOperations):
    """Who works, small documents, and what `verify` asks."""

    async def document(self, kind: str, key: str) -> Document | None:
        found = await self._reader.rows("documents.get", kind=kind, key=key)
        return job_rows.document(found[0]) if found else None

    async def documents(self, kind: str) -> list[Document]:
        return [
            job_rows.document(row) for row in await self._reader.rows("documents.all", kind=kind)
        ]

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Document | None:
        wish = check_swap(Swap(kind=kind, key=key, expected=expected, value=value))
        swapped: Document | None = (await self._writer.submit(verbs.swap, [wish]))[0]
        return swapped

    async def register_worker(self, worker: WorkerInfo) -> None:
        await self._writer.submit(verbs.enlist, [worker])

    async def heartbeat(self, holder: LeaseHolder, *, span: timedelta) -> bool:
        alive: bool = (await self._writer.submit(verbs.beat, [(holder, span)]))[0]
        return alive

    async def deregister_worker(self, holder: LeaseHolder) -> None:
        await self._writer.submit(verbs.retire, [holder])

    async def workers(self) -> list[WorkerRecord]:
        found = await self._reader.rows("jobs.workers", mono=self._clock.monotonic())
        return [job_rows.worker(row) for row in found]

    async def job_count(self) -> int:
        [(number,)] = await self._reader.rows("audit.size")
        return int(number)

    async def audit_jobs(self, *, after: int, limit: int) -> list[JobAudit]:
        found = await self._reader.rows("audit.dossiers", after=after, limit=limit)
        return [audit.job_audit(row) for row in found]

    async def dangling_records(self, *, limit: int) -> list[DanglingRecord]:
        pages = [
            await self._reader.rows(name, limit=limit) for name in audit.DANGLING_RECORD_STATEMENTS
        ]
        return [audit.dangling_record(row) for page in pages for row in page]

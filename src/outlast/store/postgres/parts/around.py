"""Who works, small documents, and what `verify` asks."""

from datetime import timedelta
from functools import partial

from outlast.core.audit.model import DanglingRecord, JobAudit
from outlast.core.document import Document, Swap, check_swap
from outlast.core.duration import MICROSECOND
from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerInfo, WorkerRecord
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.verbs import record, worker
from outlast.store.postgres.verbs.footing import require_open_store
from outlast.store.rows import audit
from outlast.store.rows import jobs as job_rows


class PostgresAround(PostgresOperations):
    """Who works, small documents, and what `verify` asks."""

    async def document(self, kind: str, key: str) -> Document | None:
        found = await self._lines.rows("documents.get", kind=kind, key=key)
        return job_rows.record(tuple(found[0])) if found else None

    async def documents(self, kind: str) -> list[Document]:
        found = await self._lines.rows("documents.all", kind=kind)
        return [job_rows.record(tuple(row)) for row in found]

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Document | None:
        wish = check_swap(Swap(kind=kind, key=key, expected=expected, value=value))
        return await self._lines.transact(require_open_store(partial(record.swap, wish=wish)))

    async def register_worker(self, worker_info: WorkerInfo) -> None:
        await self._lines.transact(partial(worker.enlist, worker=worker_info))

    async def heartbeat(self, holder: LeaseHolder, *, span: timedelta) -> bool:
        beaten = await self._lines.rows(
            "workers.heartbeat",
            now=self._now,
            mono=self._mono,
            span=span // MICROSECOND,
            **worker.who(holder),
        )
        return bool(beaten)

    async def deregister_worker(self, holder: LeaseHolder) -> None:
        await self._lines.transact(partial(worker.retire, holder=holder))

    async def workers(self) -> list[WorkerRecord]:
        found = await self._lines.rows("workers.list", mono=self._mono)
        return [job_rows.worker(tuple(row)) for row in found]

    async def job_count(self) -> int:
        [(number,)] = await self._lines.rows("audit.job_count")
        return int(number)

    async def audit_jobs(self, *, after: int, limit: int) -> list[JobAudit]:
        found = await self._lines.rows("audit.jobs", after=after, limit=limit)
        return [audit.dossier(tuple(row)) for row in found]

    async def dangling_records(self, *, limit: int) -> list[DanglingRecord]:
        pages = [await self._lines.rows(name, limit=limit) for name in audit.STRAYS]
        return [audit.stray(tuple(row)) for page in pages for row in page]

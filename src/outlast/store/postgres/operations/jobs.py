"""Reading jobs, their runs and events, and what recovery looks for."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from outlast.core.event import EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run import RunRecord
from outlast.core.state import State
from outlast.store.contract.jobs import PROMOTED_AT_ONCE, Filter
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.parts import finding
from outlast.store.postgres.unit_of_work import Row, UnitOfWork
from outlast.store.postgres.uuids import is_uuid
from outlast.store.rows import jobs as job_rows


class JobOperations(PostgresOperations):
    """Jobs, their runs and events, and what recovery looks for."""

    async def get(self, job_ids: Sequence[JobId]) -> list[Job | None]:
        known = [job_id for job_id in job_ids if is_uuid(job_id)]
        found = await self._jobs("jobs.get", ids=known) if known else []
        by_id = {job.id: job for job in found}
        return [by_id.get(job_id) for job_id in job_ids]

    async def peek(self, queue: str, *, limit: int) -> list[Job]:
        asked = {"now": self._now, "promoted": PROMOTED_AT_ONCE}
        return await self._jobs("jobs.peek", queue=queue, limit=limit, **asked)

    async def find(self, what: Filter, *, limit: int, before: int | None = None) -> list[Job]:
        name, asked = finding.question(what)
        if name is None:
            return []
        if name in finding.FEW:
            few = await self._jobs(name, before=before, **asked)
            return [job for job in few if what.fits(job)][:limit]
        return await self._jobs(name, limit=limit, before=before, **asked)

    async def counts(self) -> Mapping[tuple[str, State], int]:
        found = await self._lines.in_snapshot(partial(_whole, "jobs.counts"))
        return {(queue, State(state)): count for queue, state, count in found}

    async def chain(self, job_id: JobId) -> list[Job]:
        return await self._jobs("jobs.chain", id=job_id) if is_uuid(job_id) else []

    async def runs(self, job_id: JobId) -> list[RunRecord]:
        if not is_uuid(job_id):
            return []
        found = await self._lines.rows("jobs.runs", id=job_id)
        return [job_rows.run_record(tuple(row)) for row in found]

    async def events(self, job_id: JobId | None) -> list[EventRecord]:
        if job_id is None:
            return await self._events("jobs.events_of_no_job")
        return await self._events("jobs.events", id=job_id) if is_uuid(job_id) else []

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        return await self._events("jobs.stream", after=after, limit=limit)

    async def running_under_other_boots(
        self, *, besides: str, instance_id: str | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        asked = {"besides": besides, "instance": instance_id, "after": after}
        return await self._jobs("jobs.running_under_other_boots", limit=limit, **asked)

    async def detached_jobs(self, *, after: int = 0, limit: int) -> list[Job]:
        read = partial(_whole, "jobs.detached", after=after, limit=limit)
        return [job_rows.job(tuple(row)) for row in await self._lines.in_snapshot(read)]

    async def missing_successors(self, *, after: int = 0, limit: int) -> list[Job]:
        return await self._jobs("jobs.missing_successors", after=after, limit=limit)

    async def _events(self, name: str, **values: Any) -> list[EventRecord]:
        return [job_rows.event(tuple(row)) for row in await self._lines.rows(name, **values)]


async def _whole(name: str, work: UnitOfWork, **values: Any) -> list[Row]:
    """What goes through whole tables, planned for that."""
    await work.rows("jobs.allow_full_scans")
    return await work.rows(name, **values)

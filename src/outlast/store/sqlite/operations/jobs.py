"""Jobs, their runs, and what recovery looks for."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from outlast.clock import to_micros
from outlast.core.decide import Change
from outlast.core.event import EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.run import Claim, Lease, LeaseHolder, RunRecord
from outlast.core.state import State
from outlast.store.contract.jobs import MAX_PROMOTED_PER_CLAIM, Added, Filter, Renewal
from outlast.store.rows import jobs as job_rows
from outlast.store.sqlite import finding, verbs
from outlast.store.sqlite.operations.base import SqliteOperations


class JobOperations(SqliteOperations):
    """Jobs, their runs, and what recovery looks for."""

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        return await self._writer.submit(verbs.add, jobs) if jobs else []

    async def get(self, job_ids: Sequence[JobId]) -> list[Job | None]:
        found = await self._jobs("jobs.get", ids=list(job_ids))
        by_id = {job.id: job for job in found}
        return [by_id.get(job_id) for job_id in job_ids]

    async def claim(
        self,
        holder: LeaseHolder,
        *,
        queue: str,
        types: Collection[str],
        limit: int,
        prefetch: int = 0,
        lease: timedelta,
    ) -> list[Claim]:
        if limit + prefetch < 1 or not types:
            return []
        wanted = verbs.ClaimRequest(
            holder=holder,
            queue=queue,
            types=sorted(types),
            limit=limit,
            prefetch=prefetch,
            lease=lease,
            prefix=self._ids.prefix(),
        )
        claims: list[Claim] = (await self._writer.submit(verbs.claim, [wanted]))[0]
        return claims

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        return await self._writer.submit(verbs.apply, changes) if changes else []

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        asked = [(lease, span) for lease in leases]
        return await self._writer.submit(verbs.renew, asked) if asked else []

    async def expired_leases(self, *, limit: int) -> list[Job]:
        return await self._jobs("jobs.lapsed", mono=self._clock.monotonic(), limit=limit)

    async def missed_start_deadline(self, *, limit: int) -> list[Job]:
        return await self._jobs("jobs.overdue", now=to_micros(self._clock.now()), limit=limit)

    async def promote_due(self, *, limit: int) -> int:
        moved: int = (await self._writer.submit(verbs.promote, [limit]))[0]
        return moved

    async def peek(self, queue: str, *, limit: int) -> list[Job]:
        asked = {"now": to_micros(self._clock.now()), "promoted": MAX_PROMOTED_PER_CLAIM}
        return await self._jobs("jobs.peek", queue=queue, limit=limit, **asked)

    async def find(self, what: Filter, *, limit: int, before: int | None = None) -> list[Job]:
        name, asked = finding.select_for(what)
        if name in finding.FEW:
            few = await self._jobs(name, before=before, **asked)
            return [job for job in few if what.fits(job)][:limit]
        return await self._jobs(name, limit=limit, before=before, **asked)

    async def counts(self) -> Mapping[tuple[str, State], int]:
        found = await self._reader.cached_rows("jobs.counts")
        return {(queue, State(state)): count for queue, state, count in found}

    async def chain(self, job_id: JobId) -> list[Job]:
        return await self._jobs("jobs.chain", id=job_id)

    async def prune(self, *, older_than: timedelta, limit: int) -> int:
        gone: int = (await self._writer.submit(verbs.prune, [(older_than, limit)]))[0]
        return gone

    async def runs(self, job_id: JobId) -> list[RunRecord]:
        return [job_rows.run_record(row) for row in await self._reader.rows("jobs.runs", id=job_id)]

    async def record_progress(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        return await self._writer.submit(verbs.report, reports) if reports else []

    async def attach(self, lease: Lease, artifacts: Sequence[str]) -> bool:
        attached: bool = (await self._writer.submit(verbs.attach, [(lease, artifacts)]))[0]
        return attached

    async def events(self, job_id: JobId | None) -> list[EventRecord]:
        if job_id is None:
            found = await self._reader.rows("jobs.events_of_no_job")
        else:
            found = await self._reader.rows("jobs.events", id=job_id)
        return [job_rows.event(row) for row in found]

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        found = await self._reader.rows("jobs.stream", after=after, limit=limit)
        return [job_rows.event(row) for row in found]

    async def running_under_other_boots(
        self, *, besides: str, instance_id: str | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        asked = {"besides": besides, "instance": instance_id, "after": after}
        return await self._jobs("jobs.held", limit=limit, **asked)

    async def detached_jobs(self, *, after: int = 0, limit: int) -> list[Job]:
        return await self._jobs("jobs.adrift", after=after, limit=limit)

    async def missing_successors(self, *, after: int = 0, limit: int) -> list[Job]:
        return await self._jobs("jobs.unfollowed", after=after, limit=limit)

    async def remove_orphans(self, *, limit: int) -> list[EventRecord]:
        # Looked for by a reader: going through all runs must not keep anybody from writing.
        found = [
            job_rows.orphan_run(row) for row in await self._reader.rows("jobs.orphans", limit=limit)
        ]
        removed = await self._writer.submit(verbs.remove_orphans, found) if found else []
        return [event for event in removed if event is not None]

"""Model store: an oracle of dictionaries that other stores are compared with.

It keeps every promise of the contract but durability. No method awaits anything, so each is atomic,
and a seal takes effect at once.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta

from outlast.clock import MICROSECOND, Clock
from outlast.core.decide import Change
from outlast.core.event import EventRecord
from outlast.core.ids import Ids, JobId, RunId
from outlast.core.job import Job, NewJob
from outlast.core.limits import MAX_PROGRESS, is_json
from outlast.core.ordering import sort_key
from outlast.core.overview import JobCounts
from outlast.core.queue import QueueGate
from outlast.core.refusals import Refusals
from outlast.core.run import Claims, Lease, LeaseHolder, RunRecord
from outlast.core.state import State
from outlast.core.transition import has_missed_start_deadline
from outlast.store.contract import Capability
from outlast.store.contract import runs as run_contract
from outlast.store.contract.jobs import MAX_PROMOTED_PER_CLAIM, Added, EndedJob, Filter, Renewal
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.contract.transfer import (
    allowed_while_sealed,
)
from outlast.testing.model import (
    groups,
    key_windows,
    maintenance,
    positions,
    pruning,
    queues,
    reservations,
    workers,
)
from outlast.testing.model.add import add_job
from outlast.testing.model.apply import apply_change
from outlast.testing.model.audit import ModelAuditOperations
from outlast.testing.model.claim import choose, next_due, open_run
from outlast.testing.model.documents import ModelDocumentOperations
from outlast.testing.model.groups import ModelGroupOperations
from outlast.testing.model.insight import ModelInsightOperations
from outlast.testing.model.locks import Held, ModelLock, take
from outlast.testing.model.logs import ModelLogOperations
from outlast.testing.model.queues import ModelQueueOperations
from outlast.testing.model.reservations import ModelReservationOperations
from outlast.testing.model.schedules import ModelScheduleOperations
from outlast.testing.model.tables import LeaseEnd
from outlast.testing.model.transfer import ModelTransferOperations
from outlast.testing.model.workers import ModelWorkerOperations


class ModelStore(
    ModelGroupOperations,
    ModelReservationOperations,
    ModelScheduleOperations,
    ModelTransferOperations,
    ModelAuditOperations,
    ModelWorkerOperations,
    ModelInsightOperations,
    ModelDocumentOperations,
    ModelQueueOperations,
    ModelLogOperations,
):
    """`ModelStore(clock, ids)` keeps everything in memory, by the clock it is given."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        """Start empty and closed."""
        super().__init__(clock)
        self._ids = ids
        self._locks: Held = {}

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities of the model."""
        return frozenset({Capability.KERNEL_LOCKS})

    def exists(self) -> bool:
        """Return True: memory needs no creation."""
        return True

    async def open(self) -> None:
        """Open the store; its tables persist while the object does."""
        self._is_open = True

    async def close(self) -> None:
        """Close the store and forget its locks."""
        self._is_open = False
        self._locks = {}

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Add jobs and return what became of each."""
        added = [add_job(self._working, job, self._clock.now()) for job in jobs]
        self._notify(Notification(queues=frozenset(job.queue for job in jobs)))
        return added

    async def get(self, job_ids: Sequence[JobId]) -> list[Job | None]:
        """Return jobs in order; None for those that do not exist."""
        return [self._tables.jobs.get(job_id) for job_id in job_ids]

    async def claim(
        self,
        holder: LeaseHolder,
        *,
        queue: str,
        types: Collection[str],
        limit: int,
        prefetch: int = 0,
        lease: timedelta,
        count: int = 0,
    ) -> Claims:
        """Claim jobs of a queue, and open their runs."""
        await self.promote_due(limit=MAX_PROMOTED_PER_CLAIM)
        now, prefix = self._clock.now(), self._ids.prefix()
        gate, held = queues.gate(self._tables, queue, now), self._tables.reservation_of(queue)
        limit, prefetch = gate.capacity(limit, prefetch)
        jobs = [job for job in self._tables.queued(queue) if job.type in types]
        jobs = [job for job in jobs if held is None or job.id == held.job_id]
        chosen = choose(self._tables, jobs, limit=limit, prefetch=prefetch, now=now)
        for job in chosen:
            self._tables.leases[job.id] = self._lease_end(lease)
        if chosen and held is not None:
            self._use(held.queue, gate)
        runs = [
            open_run(self._tables, job, RunId(f"{prefix}{number:06x}"), holder, now)
            for number, job in enumerate(chosen)
        ]
        left = sum(job.type in types for job in self._tables.queued(queue))
        due_in = None if runs else next_due(self._tables, queue, types, now)
        return Claims(runs, due_in=due_in, waiting=min(left, count) if runs and count else None)

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        """Apply changes; return for each whether it was written."""
        tables = self._tables if all(map(allowed_while_sealed, changes)) else self._working
        applied = [apply_change(tables, change, self._clock) for change in changes]
        touched = [
            self._tables.jobs[c.job_id].queue for c in changes if c.job_id in self._tables.jobs
        ]
        self._notify(Notification(queues=frozenset(touched), ended=True, cancelled=True))
        return applied

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        """Renew leases; return for each whether it is still held."""
        return [self._renew(lease, span) for lease in leases]

    async def expired_leases(self, *, limit: int) -> list[Job]:
        """Return jobs whose lease expired, the longest expired first."""
        ends = self._tables.leases
        over = [job_id for job_id, end in ends.items() if end.is_past(self._clock)]
        # Readings of an earlier boot compare with nothing of this one, but they are all older.
        over.sort(key=lambda job_id: (ends[job_id].boot == self._clock.boot_id(), ends[job_id].at))
        return [self._tables.jobs[job_id] for job_id in over[:limit]]

    async def missed_start_deadline(self, *, limit: int) -> list[Job]:
        """Return queued jobs whose start deadline has passed."""
        queued = [job for job in self._tables.jobs.values() if job.state is State.QUEUED]
        late = [job for job in queued if has_missed_start_deadline(job, self._clock.now())]
        return sorted(late, key=lambda job: (job.start_deadline, job.seq))[:limit]

    async def promote_due(self, *, limit: int) -> int:
        """Move due jobs to QUEUED; return how many."""
        due = self._working.due(self._clock.now())[:limit]
        for job in due:
            self._tables.jobs[job.id] = replace(job, state=State.QUEUED)
        return len(due)

    async def peek(self, queue: str, *, limit: int) -> list[Job]:
        """Return the next jobs of a queue in claim order."""
        due = self._tables.due(self._clock.now())[:MAX_PROMOTED_PER_CLAIM]
        next_ones = [*self._tables.queued(queue), *(job for job in due if job.queue == queue)]
        held = self._tables.reservation_of(queue)
        listed = (job for job in next_ones if held is None or job.id != held.job_id)
        return sorted(listed, key=sort_key)[:limit]

    async def find(self, what: Filter, *, limit: int, before: int | None = None) -> list[Job]:
        """Return jobs that match the filter, the newest first."""
        newest_first = sorted(self._tables.jobs.values(), key=lambda job: -job.seq)
        unseen = (job for job in newest_first if before is None or job.seq < before)
        members = self._tables.members
        keyed = None if what.key is None else self._tables.keyed(what.key)
        fitting = (j for j in unseen if what.fits(j) and (keyed is None or j.root_id in keyed))
        return [j for j in fitting if what.group in (None, members.get(j.id))][:limit]

    async def counts(self) -> JobCounts:
        """Return the number of jobs per queue and state."""
        return JobCounts(Counter((job.queue, job.state) for job in self._tables.jobs.values()))

    async def chain(self, job_id: JobId) -> list[Job]:
        """Return all jobs of the chain of a job, the root first."""
        job = self._tables.jobs.get(job_id)
        return [] if job is None else self._tables.chain(job.root_id)

    async def prune(self, *, older_than: timedelta, limit: int, chains: bool = True) -> int:
        """Delete chains that ended `older_than` ago; return how many jobs."""
        before = self._clock.now() - older_than
        old = pruning.prunable(self._working, before)[:limit] if chains else []
        gone = pruning.delete_chains(self._working, old)
        groups.forget(self._working, [], before)
        workers.forget(self._tables, older_than, self._clock)
        maintenance.forget_events_of_no_job(self._tables, before, limit)
        key_windows.forget_ended(self._tables, self._clock.now(), limit)
        return gone

    async def ended_jobs(
        self, *, older_than: timedelta, after: EndedJob | None, limit: int
    ) -> list[EndedJob]:
        """Return jobs that ended well that long ago, the earliest first, behind `after`."""
        before = self._clock.now() - older_than
        return pruning.ended_jobs(self._tables, before, after)[:limit]

    async def prune_jobs(self, jobs: Sequence[EndedJob], *, older_than: timedelta) -> int:
        """Delete the chains that end with these jobs; return how many jobs."""
        asked = {job.id for job in jobs}
        may_go = pruning.prunable(self._working, self._clock.now() - older_than)
        return pruning.delete_chains(self._working, [each for each in may_go if each in asked])

    async def runs(self, job_id: JobId) -> list[RunRecord]:
        """Return the runs of a job."""
        return list(self._tables.runs.get(job_id, []))

    async def record_progress(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        """Record the progress of open runs; return for each whether its lease is current."""
        tables = self._tables
        return [
            is_json(text, MAX_PROGRESS) and tables.record_progress(lease, text)
            for lease, text in reports
        ]

    async def attach(self, lease: Lease, artifacts: Sequence[str]) -> bool:
        """Append artifacts to a run; return False unless it is the last run of its job."""
        runs = self._tables.runs.get(lease.job_id)
        if not runs or runs[-1].token != lease.token:
            return False
        runs[-1] = replace(runs[-1], artifacts=(*runs[-1].artifacts, *artifacts))
        return True

    async def events(self, job_id: JobId | None) -> list[EventRecord]:
        """Return the events of a job; those of no job for None."""
        if job_id is None:
            return self._tables.removed[-run_contract.MAX_EVENTS_OF_NO_JOB :]
        return list(self._tables.events.get(job_id, []))

    async def refusals(self, job_ids: Sequence[JobId]) -> list[Refusals | None]:
        """Return the refusals of each job in a row, up to its last ended run."""
        return [self._tables.refusals(job_id) for job_id in job_ids]

    async def running_under_other_boots(
        self, *, besides: str, instance_id: str | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """Return running jobs of other boots, by number."""
        return maintenance.page(
            maintenance.running_under_other_boots(self._tables, besides, instance_id), after, limit
        )

    async def detached_jobs(self, *, after: int = 0, limit: int) -> list[Job]:
        """Return jobs in no state, by number."""
        return maintenance.page(maintenance.detached_jobs(self._tables), after, limit)

    async def missing_successors(self, *, after: int = 0, limit: int) -> list[Job]:
        """Return failed chain jobs without their successor."""
        return maintenance.page(maintenance.missing_successors(self._tables), after, limit)

    async def remove_orphans(self, *, limit: int) -> list[EventRecord]:
        """Delete closed runs whose job is gone; return the events with their copies."""
        return maintenance.remove_orphans(self._working, self._clock.now(), limit)

    async def renumber(self, queue: str) -> int:
        """Make the positions of a queue even; return how many changed."""
        return positions.renumber(self._working, queue, self._clock.now())

    async def acquire_lock(
        self,
        name: str,
        *,
        shared: bool = False,
        lasting: bool = False,  # noqa: ARG002 - a lock needs no connection
    ) -> ModelLock | None:
        """Acquire a named lock; return None if a holder excludes it."""
        self._require_open()
        return take(self._locks, name, shared=shared)

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        """Return those of `names` that are not held."""
        self._require_open()
        return frozenset(names) - self._locks.keys()

    def subscribe(
        self, wake: Callable[[Notification], None], *, topics: Collection[Topic] = frozenset(Topic)
    ) -> Callable[[], None]:
        """Call `wake` after writes that concern `topics`; return the unsubscribe function."""

        def unsubscribe() -> None:
            self._listeners = [other for other in self._listeners if other is not own]

        def own(notification: Notification) -> None:
            if notification.topics & frozenset(topics):
                wake(notification)

        self._listeners.append(own)
        return unsubscribe

    def _use(self, queue: str, gate: QueueGate) -> None:
        if not gate.keeps_reservation:
            reservations.use(self._tables, queue, self._clock.now())
        self._notify(Notification(queues=frozenset({queue}), ended=True))

    def _renew(self, lease: Lease, span: timedelta) -> Renewal:
        job = self._tables.jobs.get(lease.job_id)
        if job is None or not self._tables.is_open(job) or job.token != lease.token:
            return Renewal(held=False)
        self._tables.leases[job.id] = self._lease_end(span)
        reservations.renew(self._tables, job.id, self._clock)
        return Renewal(held=True, cancel_requested=job.cancel_requested)

    def _lease_end(self, span: timedelta) -> LeaseEnd:
        return LeaseEnd(self._clock.monotonic() + span // MICROSECOND, self._clock.boot_id())

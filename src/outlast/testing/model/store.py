"""The oracle: a store of dictionaries, too plain to be wrong, that other stores are compared with.

It keeps every promise of the contract but durability. No verb awaits anything, so each is atomic as
a whole, and a seal is seen by everybody at once.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from outlast.clock import MICROSECOND, Clock
from outlast.core.audit.model import DanglingRecord, JobAudit
from outlast.core.decide import Change
from outlast.core.document import Document, Swap
from outlast.core.event import ZERO, EventRecord
from outlast.core.explain import WaitFacts
from outlast.core.group import ClosingGroup, Group, NewGroup, check_group
from outlast.core.ids import Ids, JobId, RunId
from outlast.core.job import Job, NewJob, Slot
from outlast.core.limits import MAX_PROGRESS
from outlast.core.ordering import sort_key
from outlast.core.overview import Overview
from outlast.core.queue import QueueGate
from outlast.core.reservation import NewReservation, Reservation, ReservationId
from outlast.core.run import Claim, Lease, LeaseHolder, RunRecord
from outlast.core.schedule import Firing, Schedule, SlotRecord
from outlast.core.state import State
from outlast.core.worker import WorkerInfo, WorkerRecord
from outlast.errors import StoreClosed
from outlast.store.contract import Capability
from outlast.store.contract.jobs import PROMOTED_AT_ONCE, Added, Filter, Renewal
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.contract.queues import Queue
from outlast.store.contract.reservations import Reserved
from outlast.store.contract.schedules import Due, FireResult, SetSchedule
from outlast.store.contract.transfer import (
    OPEN,
    Row,
    StatusChange,
    TableKind,
    TransferStage,
    TransferStatus,
    allowed_while_sealed,
    closed_error,
    next_status,
    refuse_load,
)
from outlast.testing.model import (
    audit,
    documents,
    groups,
    insight,
    maintenance,
    positions,
    queues,
    reservations,
    schedules,
    transfer,
    workers,
)
from outlast.testing.model.add import add_job
from outlast.testing.model.apply import apply_change
from outlast.testing.model.claim import choose, is_late, open_run
from outlast.testing.model.locks import Held, ModelLock, take
from outlast.testing.model.tables import LeaseEnd, Tables
from outlast.testing.model_json import is_json

PRUNED = frozenset({State.SUCCEEDED, State.SKIPPED, State.CANCELLED})


class ModelStore:
    """`ModelStore(clock, ids)` keeps everything in memory, by the clock it is given."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids
        self._kept = Tables()
        self._is_open = False
        self._locks: Held = {}
        self._listeners: list[Callable[[Notification], None]] = []

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.SEALS})

    def exists(self) -> bool:
        return True

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        self._locks = {}  # what was held in the old one says nothing any more

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        added = [add_job(self._working, job, self._clock.now()) for job in jobs]
        self._tell(Notification(queues=frozenset(job.queue for job in jobs)))
        return added

    async def get(self, job_ids: Sequence[JobId]) -> list[Job | None]:
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
    ) -> list[Claim]:
        await self.promote_due(limit=PROMOTED_AT_ONCE)
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
        return [
            open_run(self._tables, job, RunId(f"{prefix}{number:06x}"), holder, now)
            for number, job in enumerate(chosen)
        ]

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        tables = self._tables if all(map(allowed_while_sealed, changes)) else self._working
        applied = [apply_change(tables, change, self._clock) for change in changes]
        touched = [
            self._tables.jobs[c.job_id].queue for c in changes if c.job_id in self._tables.jobs
        ]
        self._tell(Notification(queues=frozenset(touched), ended=True, cancelled=True))
        return applied

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        return [self._renew(lease, span) for lease in leases]

    async def expired_leases(self, *, limit: int) -> list[Job]:
        ends = self._tables.leases
        over = [job_id for job_id, end in ends.items() if end.is_past(self._clock)]
        # Readings of an earlier boot compare with nothing of this one, but they are all older.
        over.sort(key=lambda job_id: (ends[job_id].boot == self._clock.boot_id(), ends[job_id].at))
        return [self._tables.jobs[job_id] for job_id in over[:limit]]

    async def missed_start_deadline(self, *, limit: int) -> list[Job]:
        queued = [job for job in self._tables.jobs.values() if job.state is State.QUEUED]
        late = [job for job in queued if is_late(job, self._clock.now())]
        return sorted(late, key=lambda job: (job.start_deadline, job.seq))[:limit]

    async def promote_due(self, *, limit: int) -> int:
        due = self._working.due(self._clock.now())[:limit]
        for job in due:
            self._tables.jobs[job.id] = replace(job, state=State.QUEUED)
        return len(due)

    async def peek(self, queue: str, *, limit: int) -> list[Job]:
        due = self._tables.due(self._clock.now())[:PROMOTED_AT_ONCE]
        next_ones = [*self._tables.queued(queue), *(job for job in due if job.queue == queue)]
        return sorted(next_ones, key=sort_key)[:limit]

    async def find(self, what: Filter, *, limit: int, before: int | None = None) -> list[Job]:
        newest_first = sorted(self._tables.jobs.values(), key=lambda job: -job.seq)
        unseen = (job for job in newest_first if before is None or job.seq < before)
        members = self._tables.members
        keyed = None if what.key is None else self._tables.keyed(what.key)
        fitting = (j for j in unseen if what.fits(j) and (keyed is None or j.root_id in keyed))
        return [j for j in fitting if what.group in (None, members.get(j.id))][:limit]

    async def counts(self) -> Mapping[tuple[str, State], int]:
        return Counter((job.queue, job.state) for job in self._tables.jobs.values())

    async def chain(self, job_id: JobId) -> list[Job]:
        job = self._tables.jobs.get(job_id)
        return [] if job is None else self._tables.chain(job.root_id)

    async def prune(self, *, older_than: timedelta, limit: int) -> int:
        before = self._clock.now() - older_than
        tips = [job for job in self._working.jobs.values() if job.id not in self._tables.successors]
        over = [(j.finished_at, j.seq, j) for j in tips if j.state in PRUNED and j.finished_at]
        old = [
            job
            for finished_at, _, job in sorted(over)
            if finished_at < before and not groups.is_kept(self._tables, job)
        ]
        gone = [job for tip in old[:limit] for job in self._tables.chain(tip.root_id)]
        for job in gone:
            self._tables.forget(job.id)
            reservations.forget(self._tables, job.id)
        groups.forget(self._tables, [job.id for job in gone], before)
        workers.forget(self._tables, older_than, self._clock)
        return len(gone)

    async def runs(self, job_id: JobId) -> list[RunRecord]:
        return list(self._tables.runs.get(job_id, []))

    async def record_progress(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        tables = self._tables
        return [
            is_json(text, MAX_PROGRESS) and tables.record_progress(lease, text)
            for lease, text in reports
        ]

    async def attach(self, lease: Lease, artifacts: Sequence[str]) -> bool:
        runs = self._tables.runs.get(lease.job_id)
        if not runs or runs[-1].token != lease.token:
            return False
        runs[-1] = replace(runs[-1], artifacts=(*runs[-1].artifacts, *artifacts))
        return True

    async def events(self, job_id: JobId | None) -> list[EventRecord]:
        if job_id is None:
            return list(self._tables.removed)
        return list(self._tables.events.get(job_id, []))

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        return documents.stream(self._tables, after, limit)

    async def running_under_other_boots(
        self, *, besides: str, instance_id: str | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        return maintenance.page(maintenance.held(self._tables, besides, instance_id), after, limit)

    async def detached_jobs(self, *, after: int = 0, limit: int) -> list[Job]:
        return maintenance.page(maintenance.adrift(self._tables), after, limit)

    async def missing_successors(self, *, after: int = 0, limit: int) -> list[Job]:
        return maintenance.page(maintenance.unfollowed(self._tables), after, limit)

    async def remove_orphans(self, *, limit: int) -> list[EventRecord]:
        return maintenance.remove_orphans(self._working, self._clock.now(), limit)

    async def overview(self, *, span: timedelta) -> Overview:
        return insight.overview(self._tables, self._clock, span)

    async def wait_facts(self, job_id: JobId) -> WaitFacts | None:
        return insight.situation(self._tables, self._clock, job_id)

    async def describe(self) -> Mapping[str, str]:
        return {"engine": "a model in memory", "jobs": str(len(self._tables.jobs))}

    async def health_warnings(self) -> list[str]:
        return ["it forgets everything when its process ends"]

    async def set_queue(self, queue: Queue) -> None:
        queues.set_queue(self._working, queue)
        self._tell(Notification(queues=frozenset({queue.name})))

    async def queue(self, name: str) -> Queue:
        return queues.shown(self._tables.queue(name), self._clock.now())

    async def queues(self) -> list[Queue]:
        return [await self.queue(name) for name in sorted(self._tables.queues)]

    async def pause(self, name: str, *, reason: str | None, span: timedelta | None) -> None:
        queues.pause(self._working, name, reason, span, self._clock.now())

    async def resume(self, name: str) -> bool:
        resumed = queues.resume(self._working, name, self._clock.now())
        self._tell(Notification(queues=frozenset({name})))
        return resumed

    async def document(self, kind: str, key: str) -> Document | None:
        return self._tables.records.get((kind, key))

    async def documents(self, kind: str) -> list[Document]:
        return documents.listed(self._tables, kind)

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Document | None:
        wish = Swap(kind=kind, key=key, expected=expected, value=value)
        return documents.swap(self._working, wish, self._clock.now())

    async def renumber(self, queue: str) -> int:
        return positions.renumber(self._working, queue, self._clock.now())

    async def add_group(self, group: NewGroup) -> bool:
        return groups.add_group(self._working, check_group(group), self._clock.now())

    async def seal_group(self, group_id: str) -> bool:
        sealed = groups.seal_group(self._working, group_id, self._clock.now())
        self._tell(Notification(queues=frozenset({""})))
        return sealed

    async def stop_group(self, group_id: str, *, reason: str | None, skip: bool = False) -> bool:
        return groups.stop_group(self._working, group_id, reason, skip=skip)

    async def group(self, group_id: str) -> Group | None:
        return groups.record(self._tables, group_id)

    async def find_groups(self, *, limit: int, before: int | None = None) -> list[Group]:
        return groups.found(self._tables, limit, before)

    async def groups_finished(self, group_ids: Sequence[str]) -> list[bool | None]:
        return [groups.over(self._tables, group_id) for group_id in group_ids]

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        return groups.closing_groups(self._tables, limit)

    async def remaining_members(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        return maintenance.page(groups.left_over(self._tables, group_id), after, limit)

    async def mark_groups_closed(self, *, limit: int) -> int:
        return groups.sweep(self._working, limit)

    async def expire_groups(self, *, older_than: timedelta, limit: int) -> int:
        return groups.expire(self._working, older_than, limit, self._clock.now())

    async def reserve(self, new: NewReservation, job: NewJob) -> Reserved:
        reserved = reservations.reserve(self._working, new, job, self._clock)
        self._tell(Notification(queues=frozenset({job.queue})))
        return reserved

    async def extend_reservation(self, reservation_id: ReservationId, *, span: timedelta) -> bool:
        return reservations.keep(self._working, reservation_id, span, self._clock)

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        return self._tables.reservations.get(reservation_id)

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        latest = reversed(self._tables.reservations.values())
        return [held for held in latest if held.is_active or not active_only][:limit]

    async def expired_reservations(self, *, limit: int) -> list[Reservation]:
        ends = self._tables.silences
        over = reservations.lapsed(self._tables, self._clock)
        this_boot = self._clock.boot_id()
        over.sort(key=lambda held: (ends[held.id][0].boot == this_boot, ends[held.id][0].at))
        return over[:limit]

    async def release_stale_reservations(self, *, limit: int) -> list[Reservation]:
        return reservations.free(self._working, self._clock, limit)

    async def now(self) -> datetime:
        self._require_open()
        return self._clock.now()

    async def set_schedule(
        self, schedule_id: str, *, expected: int | None, value: SetSchedule | None
    ) -> Schedule | None:
        now = self._clock.now()
        return schedules.set_schedule(self._working, schedule_id, expected, value, now)

    async def schedule(self, name: str) -> Schedule | None:
        return schedules.find(self._tables, name)

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        return schedules.page(self._tables, after, limit)

    async def due_schedules(self, *, ahead: timedelta = ZERO, limit: int) -> Due:
        return schedules.due(self._tables, self._clock.now(), ahead, limit)

    async def fire(self, firings: Sequence[Firing]) -> list[FireResult]:
        now = self._clock.now()
        fired = [schedules.fire(self._working, firing, now) for firing in firings]
        self._tell(Notification(queues=frozenset(each.job.queue for each in firings if each.job)))
        return fired

    async def slots(
        self, series: str, *, before: datetime | None = None, limit: int
    ) -> list[SlotRecord]:
        return schedules.slots(self._tables, series, before, limit)

    async def slot_rows(self, series: str, moments: Sequence[datetime]) -> list[SlotRecord | None]:
        return [self._tables.slots.get(Slot(series=series, at=at)) for at in moments]

    async def running_names(self, names: Collection[str]) -> frozenset[str]:
        return schedules.running_names(self._tables, names)

    async def register_worker(self, worker: WorkerInfo) -> None:
        workers.enlist(self._tables, worker, self._clock)

    async def heartbeat(self, holder: LeaseHolder, *, span: timedelta) -> bool:
        return workers.beat(self._tables, holder, span, self._clock)

    async def deregister_worker(self, holder: LeaseHolder) -> None:
        workers.retire(self._tables, holder, self._clock)

    async def workers(self) -> list[WorkerRecord]:
        return workers.listed(self._tables, self._clock)

    async def job_count(self) -> int:
        return len(self._tables.jobs)

    async def audit_jobs(self, *, after: int, limit: int) -> list[JobAudit]:
        return audit.dossiers(self._tables, after, limit)

    async def dangling_records(self, *, limit: int) -> list[DanglingRecord]:
        return audit.strays(self._tables, limit)

    async def transfer_status(self) -> TransferStatus:
        return self._tables.footing.at(self._clock.now())

    async def change_transfer_status(self, step: StatusChange) -> bool:
        footing = next_status(self._tables.footing, step, self._clock.now())
        self._tables.footing = footing or self._tables.footing
        self._tell(Notification(queues=frozenset({""})))
        return footing is not None

    async def dump(
        self, kind: TableKind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        return transfer.dump(self._tables, kind, after, limit, ended_only=ended_only)

    async def load(self, kind: TableKind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        footing = await self.transfer_status()
        if footing.stage is not TransferStage.FILLING:
            raise refuse_load(footing)
        transfer.load(self._tables, kind, rows, gone, self._clock)

    async def acquire_lock(self, name: str, *, shared: bool = False) -> ModelLock | None:
        self._require_open()
        return take(self._locks, name, shared=shared)

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        self._require_open()
        return frozenset(names) - self._locks.keys()

    def subscribe(
        self, wake: Callable[[Notification], None], *, topics: Collection[Topic] = frozenset(Topic)
    ) -> Callable[[], None]:
        def unsubscribe() -> None:
            self._listeners = [other for other in self._listeners if other is not own]

        def own(hint: Notification) -> None:
            if hint.topics & frozenset(topics):
                wake(hint)

        self._listeners.append(own)
        return unsubscribe

    @property
    def _tables(self) -> Tables:
        self._require_open()
        return self._kept

    @property
    def _working(self) -> Tables:
        """The same for whoever wants something of it: refused unless it takes work."""
        footing = self._tables.footing.at(self._clock.now())
        if footing is not OPEN:
            raise closed_error(footing)
        return self._kept

    def _require_open(self) -> None:
        if not self._is_open:
            raise StoreClosed("the model store is not open; await open() first")

    def _tell(self, hint: Notification) -> None:
        for wake in self._listeners:
            wake(hint)

    def _use(self, queue: str, gate: QueueGate) -> None:
        if not gate.keeps_reservation:
            reservations.use(self._tables, queue, self._clock.now())
        self._tell(Notification(queues=frozenset({queue}), ended=True))

    def _renew(self, lease: Lease, span: timedelta) -> Renewal:
        job = self._tables.jobs.get(lease.job_id)
        if job is None or not self._tables.is_open(job) or job.token != lease.token:
            return Renewal(held=False)
        self._tables.leases[job.id] = self._lease_end(span)
        reservations.renew(self._tables, job.id, self._clock)
        return Renewal(held=True, cancel_requested=job.cancel_requested)

    def _lease_end(self, span: timedelta) -> LeaseEnd:
        return LeaseEnd(self._clock.monotonic() + span // MICROSECOND, self._clock.boot_id())

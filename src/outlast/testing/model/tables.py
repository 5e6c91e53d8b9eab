"""Tables of the model store: plain dictionaries, and queries on them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count

from outlast.clock import Clock
from outlast.core.decide import Change
from outlast.core.document import Document
from outlast.core.event import EventKind, EventRecord
from outlast.core.group import Group
from outlast.core.ids import JobId, RunId
from outlast.core.job import DedupeKey, Job, Slot
from outlast.core.ordering import Ordering, next_position, sort_key
from outlast.core.refusals import UNFIT, Refusals, read_refusals
from outlast.core.reservation import Reservation, ReservationId
from outlast.core.run import Lease, LeaseHolder, RunRecord
from outlast.core.schedule import Schedule, SlotRecord
from outlast.core.state import WAITING, State
from outlast.core.worker import WorkerRecord
from outlast.store.contract.queues import Queue
from outlast.store.contract.transfer import OPEN, TransferStatus


@dataclass(frozen=True, slots=True)
class LeaseEnd:
    """End of an open run's lease: a monotonic reading, and the boot it belongs to."""

    at: int
    boot: str

    def is_past(self, clock: Clock) -> bool:
        """Return True if the lease has expired."""
        return self.boot != clock.boot_id() or self.at <= clock.monotonic()


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group without member counts; `swept` once it is marked closed."""

    group: Group
    swept: bool = False


@dataclass(slots=True)
class Tables:
    """All tables, by job id unless the name says otherwise.

    A running job has a lease end; one without is detached. `removed` are the events of no job.
    """

    jobs: dict[JobId, Job] = field(default_factory=dict)
    runs: dict[JobId, list[RunRecord]] = field(default_factory=dict)
    events: dict[JobId, list[EventRecord]] = field(default_factory=dict)
    leases: dict[JobId, LeaseEnd] = field(default_factory=dict)
    successors: dict[JobId, JobId] = field(default_factory=dict)
    slots: dict[Slot, SlotRecord] = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)  # by their own id
    keys: dict[DedupeKey, JobId] = field(default_factory=dict)
    active_keys: dict[str, JobId] = field(default_factory=dict)
    groups: dict[str, GroupRow] = field(default_factory=dict)  # by their own id
    members: dict[JobId, str] = field(default_factory=dict)  # the group that each belongs to
    queues: dict[str, Queue] = field(default_factory=dict)
    workers: dict[LeaseHolder, WorkerRecord] = field(default_factory=dict)
    heartbeats: dict[LeaseHolder, LeaseEnd] = field(default_factory=dict)
    reservations: dict[ReservationId, Reservation] = field(default_factory=dict)
    expiries: dict[ReservationId, tuple[LeaseEnd, timedelta]] = field(default_factory=dict)
    numbers: dict[ReservationId, int] = field(default_factory=dict)  # as other stores number them
    removed: list[EventRecord] = field(default_factory=list)
    records: dict[tuple[str, str], Document] = field(default_factory=dict)
    transfer_status: TransferStatus = OPEN
    versions: Iterator[int] = field(default_factory=lambda: count(1))
    seqs: Iterator[int] = field(default_factory=lambda: count(1))
    event_ids: Iterator[int] = field(default_factory=lambda: count(1))

    def insert(self, job: Job) -> None:
        """Insert a new job without runs and events."""
        self.jobs[job.id] = job
        self.runs[job.id] = []
        self.events[job.id] = []
        if job.retry_of is not None:
            self.successors[job.retry_of] = job.id

    def forget(self, job_id: JobId) -> None:
        """Delete a job with its runs and events; keys and slots stay."""
        for table in (self.jobs, self.runs, self.events):
            del table[job_id]
        self.successors.pop(job_id, None)

    def append_event(
        self,
        change: Change,
        kind: EventKind,
        *,
        at: datetime,
        run_id: RunId | None,
        reason: str | None,
        detail: str | None = None,
    ) -> None:
        """Append an event about this change."""
        event = EventRecord(
            id=next(self.event_ids),
            at=at,
            job_id=change.job_id,
            run_id=run_id,
            kind=kind,
            token=change.token,
            reason=reason,
            detail=detail,
        )
        self.events[change.job_id].append(event)

    def refusals(self, job_id: JobId) -> Refusals | None:
        """Return the refusals in a row up to the job's last ended run."""
        job = self.jobs.get(job_id)
        if job is None:
            return None
        last = job.token - (job.state is State.RUNNING)
        kind = EventKind.UNFIT if last else EventKind.CHAINED
        for event in reversed(self.events.get(job.id if last else job.retry_of or job.id, [])):
            if event.kind is kind and event.reason == UNFIT and (not last or event.token == last):
                return read_refusals(event.detail, event.at)
        return None

    def close_run(self, change: Change, at: datetime) -> None:
        """Close the open run of the job as the change says, and end its lease."""
        runs = self.runs[change.job_id]
        assert change.move.run is not None
        runs[-1] = replace(
            runs[-1],
            status=change.move.run,
            reason=change.reason,
            finished_at=at,
            error=change.error,
            result=change.result,
            exit_code=change.exit_code,
            log_path=change.log_path,
            artifacts=(*runs[-1].artifacts, *change.artifacts),
        )
        self.leases.pop(change.job_id, None)

    def is_open(self, job: Job) -> bool:
        """Return True if the job has an open run."""
        return job.id in self.leases

    def is_detached(self, job: Job) -> bool:
        """Return True if the job runs without an open run."""
        return job.state is State.RUNNING and not self.is_open(job)

    def record_progress(self, lease: Lease, progress: str) -> bool:
        """Set the progress of the open run under that token; return False if there is none."""
        job = self.jobs.get(lease.job_id)
        if job is None or job.state is not State.RUNNING or job.token != lease.token:
            return False
        self.jobs[job.id] = replace(job, progress=progress)
        self.runs[job.id][-1] = replace(self.runs[job.id][-1], progress=progress)
        return True

    def queue(self, name: str) -> Queue:
        """Return the queue as set, or its defaults."""
        return self.queues.get(name, Queue(name=name))

    def reservation_of(self, queue: str) -> Reservation | None:
        """Return the active reservation of a queue, or None."""
        active = (held for held in self.reservations.values() if held.is_active)
        return next((held for held in active if held.queue == queue), None)

    def new_position(self, queue: str, priority: int) -> int:
        """Return the position of a new job: behind the waiting ones, or 0 without positions."""
        named = self.queue(queue)
        if named.ordering is Ordering.SCHEDULED:
            return 0
        waiting = (job for job in self.jobs.values() if job.state in WAITING)
        positions = [j.position for j in waiting if (j.queue, j.priority) == (queue, priority)]
        return next_position(max(positions, default=None), named.gap)

    def queued(self, queue: str) -> list[Job]:
        """Return the queued jobs of a queue in claim order."""
        jobs = self.jobs.values()
        return sorted(
            (j for j in jobs if j.queue == queue and j.state is State.QUEUED), key=sort_key
        )

    def due(self, now: datetime) -> list[Job]:
        """Return waiting jobs whose time has come, the earliest first."""
        waits = (State.SCHEDULED, State.RETRY_WAIT)
        due = [j for j in self.jobs.values() if j.state in waits and j.available_at <= now]
        return sorted(due, key=lambda job: (job.available_at, job.seq))

    def keyed(self, key: str) -> set[JobId]:
        """Return the roots of chains that hold that dedupe key, in any bucket, or active key."""
        roots = {root for held, root in self.keys.items() if held.key == key}
        if key in self.active_keys:
            roots.add(self.jobs[self.active_keys[key]].root_id)
        return roots

    def chain(self, root_id: JobId) -> list[Job]:
        """Return the jobs of one chain, the root first."""
        jobs = [job for job in self.jobs.values() if job.root_id == root_id]
        return sorted(jobs, key=lambda job: job.seq)

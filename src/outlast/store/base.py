"""The contract every store keeps. Each promise is written here, once, and tested by name.

**Atomicity is per item.** `add`, `claim` and `apply` take many items and promise each one alone:
its job, run, keys, successor and event are written together or not at all, and one bad item never
sinks its neighbours. All or nothing over a batch is not promised.

**Time is the store's.** Callers give spans; the store turns them into moments by its own clock.
Leases are judged by a clock nobody can set.

**Durable means durable.** When a verb answers, what it wrote survives the death of the process
and, as far as the disk keeps its word, of the machine.

Any verb may raise an `OperatorError` (`StoreBusy`, `StoreFull`, …): then nothing of it was
written, unless it says otherwise. An answer that never came (the process died, the connection
broke) may have been written: `add` with the same job id and `apply` with the same token are both
safe to repeat.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from outlast.core.decide import Change
from outlast.core.event import EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.ordering import GAP, Ordering
from outlast.core.queue import Pause
from outlast.core.run import Claim, Lease, LeaseHolder, RunRecord
from outlast.core.state import State
from outlast.store.around import Locks, Notifications, Workers
from outlast.store.contract.audit import AuditReads
from outlast.store.contract.documents import Documents
from outlast.store.contract.groups import Groups
from outlast.store.contract.insight import InsightReads
from outlast.store.contract.reservations import Reservations
from outlast.store.contract.schedules import Schedules
from outlast.store.contract.transfer import Moving

PROMOTED_AT_ONCE: Final = 10_000
"""How many jobs one claim promotes at most; more that fall due together take several claims."""


class Capability(StrEnum):
    """What some stores can do and others truly cannot; each has tests of its own."""

    DURABLE = "durable"  # what it holds survives its process
    SHARED = "shared"  # several processes may use it at once
    TRANSACTIONS = "transactions"  # a caller's own transaction can carry an enqueue or a finish
    SEALS = "seals"  # a seal holds from one moment on for everybody: see `moving`
    MAINTENANCE_CHECK = (
        "chores"  # one look tells whether there is anything to tidy: see `MaintenanceCheck`
    )


class Added(NamedTuple):
    """What became of one job given to `add`.

    `created`: it was stored by this call. Otherwise `id` is the job that stands in its place: the
    one that holds the key or slot (the root of its chain), or itself if it was stored before.
    `refused`: the store cannot keep it, and says why; nothing of it was written.
    """

    id: JobId
    created: bool
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Renewal:
    """What became of one lease given to `renew`."""

    held: bool
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How a named queue orders its jobs and how many run at once. Not set: `scheduled`, no limit.

    `pause` is how it stands, None when it is not paused; `set_queue` does not write it.
    """

    name: str
    ordering: Ordering = Ordering.SCHEDULED
    gap: int = GAP
    concurrency: int | None = None  # how many of its jobs run at a time, anywhere; None: no limit
    pause: Pause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which jobs `find` lists; what is None does not matter."""

    states: frozenset[State] | None = None
    queue: str | None = None
    type: str | None = None
    group: str | None = None  # the id of a group: its members, every link of a chain
    key: str | None = None  # the chains that hold this key, in any bucket, or this active key
    prefix: str | None = None  # how its id begins

    def fits(self, job: Job) -> bool:
        """Whether the job fits, as far as it can be told from the job alone."""
        return (
            (self.states is None or job.state in self.states)
            and (self.queue is None or job.queue == self.queue)
            and (self.type is None or job.type == self.type)
            and (self.prefix is None or job.id.startswith(self.prefix))
        )


class Jobs(Protocol):
    """Jobs from their enqueue to their end."""

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Store each job with its keys and slot; answers come in the order given.

        Atomic per job. A job due now (no delay, `at` not in the future) is `queued`, any other
        `scheduled`; its `created_at` is the store's now. In a `position` queue it is placed after
        the last waiting job of its priority, in the order given. If its slot, its key or its
        active key is taken (asked in that order) it is not stored, and the holder's id comes
        back; of two in one call, or in two processes, one wins. Adding an id that is stored
        already changes nothing, whatever else it asks; a taken key is answered before a fault is
        looked for. `retry_of` must name a finished job without a successor, and gives the new job
        that chain's root; the job before it gets the event `retried`, with the new id as detail.
        """
        ...

    async def get(self, job_ids: Sequence[JobId]) -> list[Job | None]:
        """Each job as it stands, in the order asked; None where there is none."""
        ...

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
        """Take up to `limit` jobs of these types, and up to `prefetch` more, in claim order.

        First promotes what is due in any queue (`scheduled` and `retry_wait` → `queued`). Claim
        order is `priority DESC, position, available_at, created_at, seq` over the queued jobs.
        Taking a job raises its token by one, opens its run and starts its lease in one atomic
        step; a job goes to one claimer only. Left out: jobs past their start deadline (it counts
        for the first start alone), and `once` jobs whose name runs already, in any queue, or was
        taken earlier in this claim. Beyond `limit` only `lease` jobs without a lost run are taken
        and others passed over, for those may be taken before there is room to run them.

        Of a paused queue nothing is taken. Of one with a `concurrency` so many are that its open
        runs never exceed it, whoever claims, and none beyond `limit`.
        """
        ...

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        """Write each change whose token is current and whose guard holds; True where it did.

        Atomic per change: the run it closes, the place or end of the job, its successor, its
        active key (freed, or handed to the successor) and its event. False means that the job
        has moved on: nothing was written for it, except that a refused write of a former holder
        (guard `open`) leaves a `late_write_refused` event. False also answers a change that
        cannot be kept (a result that is no JSON or over 256 KiB, an error over 64 KiB, a log path
        over 4,096 characters, an exit code over 32 bits, text that cannot be stored); then
        nothing is left.

        A change that closes a run writes its exit code and log path, once and with the end.

        Changes are applied in the order given, also when two concern one job. A job put back
        keeps its place in its queue; with a delay it is due that much later. A successor goes
        behind the waiting jobs of its priority; where one follows already, a change of an ended
        job is refused, and one of a job adrift ends it and leaves the successor as it is.

        A change with a `place` brings a waiting job exactly there among the waiting jobs of its
        queue and priority, whatever their state; the order of all others stays. Nobody's position
        becomes 0 by it. False if its target does not wait, is of another queue or priority, or is
        the job itself. A swap exchanges two positions. A change with an `edit` writes what it
        gives; params only of a job that was never claimed, else it answers False. With another
        priority the job goes behind the waiting ones of that priority (in a `scheduled` queue by
        its due time); with another due time it is due then, by the store's clock.
        """
        ...

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        """Extend each lease whose token is current to `span` from now, lapsed or not."""
        ...

    async def expired_leases(self, *, limit: int) -> list[Job]:
        """Running jobs whose lease is over, the longest lapsed first."""
        ...

    async def missed_start_deadline(self, *, limit: int) -> list[Job]:
        """Queued jobs past their start deadline and never started, the earliest first."""
        ...

    async def promote_due(self, *, limit: int) -> int:
        """Move up to `limit` due jobs to `queued`, the earliest due first; how many it moved."""
        ...

    async def peek(self, queue: str, *, limit: int) -> list[Job]:
        """The next jobs of one queue in claim order; changes nothing.

        What is due and would be promoted by the next claim counts as `queued`. It is the order
        alone: whether anything may be taken now does not matter.
        """
        ...

    async def find(self, what: Filter, *, limit: int, before: int | None = None) -> list[Job]:
        """Jobs that fit, the newest `seq` first; `before` pages on from the last one seen.

        A job adrift (see `RecoveryReads`) is listed only where no state is asked for.
        """
        ...

    async def counts(self) -> Mapping[tuple[str, State], int]:
        """How many jobs each queue has in each state; nothing for none."""
        ...

    async def chain(self, job_id: JobId) -> list[Job]:
        """The whole retry chain this job belongs to, root first; empty if there is no such job."""
        ...

    async def prune(self, *, older_than: timedelta, limit: int) -> int:
        """Delete up to `limit` chains that ended that long ago, with their runs and events.

        Only whole chains whose last job succeeded, was skipped or cancelled: never a dead letter
        or a failure. Members of a group stay until it is over, and its record goes with the last
        of them. Keys and slots stay for ever, so that nothing is ever repeated. Answers how
        many jobs went. Workers that stopped that long ago, or were last seen then and are not
        alive, leave the list too; their runs still name them.
        """
        ...


class Runs(Protocol):
    """The attempts at a job."""

    async def runs(self, job_id: JobId) -> list[RunRecord]:
        """Every run of a job, the first one first, the open one last."""
        ...

    async def record_progress(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        """Keep what each open run says of its progress; the last one counts. True where kept.

        The text is JSON of at most 4 KiB. Readable as `progress` of the run, and of the job while
        it runs; it stays with the run when that is closed. False if the run is closed, or the job
        was claimed again since, or the text cannot be kept. Atomic per report; nothing is left of
        one that was refused.
        """
        ...

    async def attach(self, lease: Lease, artifacts: Sequence[str]) -> bool:
        """Append artifacts to the run this lease belongs to, open or closed.

        False if there is no such run, or if the job was claimed again since.
        """
        ...

    async def events(self, job_id: JobId | None) -> list[EventRecord]:
        """Everything unusual that was recorded of a job, oldest first.

        None asks for what belongs to no job: what befell queues, and the copies that
        `remove_orphans` left.
        """
        ...

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        """The next `limit` events of everybody, in the order of their ids, from `after` on.

        Whoever pages on from the last id seen misses nothing, however many write meanwhile: an
        event becomes visible only when every event with a lower id is, or never will be. What was
        pruned with its job is gone from here too.
        """
        ...


class RecoveryReads(Protocol):
    """What recovery looks for. Only `held` ever finds anything in a store nobody has broken.

    The lists come in the order in which the jobs were stored; `after` pages on from the `seq` of
    the last one seen.
    """

    async def running_under_other_boots(
        self, *, besides: str, instance_id: str | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """Running jobs held under another boot than `besides`: by that instance, or by anybody.

        The holder of one whose worker is not known is None, and belongs to no instance.
        """
        ...

    async def detached_jobs(self, *, after: int = 0, limit: int) -> list[Job]:
        """Jobs that neither wait, nor have an open run, nor have ended.

        Each is shown as `running`, under the token of its last run (0 if it has none), with the
        failures and losses that its runs and its chain bear out. Its place is lost: priority 0,
        and a change that puts it back puts it behind the others.
        """
        ...

    async def missing_successors(self, *, after: int = 0, limit: int) -> list[Job]:
        """Jobs of `chain` delivery that ended `failed` and have no successor."""
        ...

    async def remove_orphans(self, *, limit: int) -> list[EventRecord]:
        """Delete up to `limit` closed runs whose job is gone, and answer what was recorded.

        Atomic per run: its event `orphan_run_removed`, of no job, holds a copy of it as JSON.
        """
        ...


class Queues(Protocol):
    """Named orders."""

    async def set_queue(self, queue: Queue) -> None:
        """Create the queue or change it; jobs that wait keep their positions.

        A pause stays as it is, and so do runs over a lowered limit.
        """
        ...

    async def queue(self, name: str) -> Queue:
        """The queue as set, or its defaults. A pause whose time has passed is none."""
        ...

    async def queues(self) -> list[Queue]:
        """Every queue that was ever set or paused, by name."""
        ...

    async def pause(self, name: str, *, reason: str | None, span: timedelta | None) -> None:
        """Let nothing of this queue be claimed until it is resumed, or for `span` from now.

        What runs goes on, and jobs may be added. Pausing again replaces reason and time. Atomic
        with its event `paused` of the queue, whose detail is the end of the pause, if it has one.
        """
        ...

    async def resume(self, name: str) -> bool:
        """End the pause, with an event `resumed` of the queue. False, and nothing, without one."""
        ...

    async def normalise(self, queue: str) -> int:
        """Make the positions of the waiting jobs even, and answer how many changed.

        All or nothing, and the order stays. In a `position` queue the jobs of each priority get
        gap, 2 gap, 3 gap …; in a `scheduled` one those that have a position, on their side of 0.
        If any changed, an event `normalised` of the queue is recorded.
        """
        ...


class Transaction(Protocol):
    """A transaction of the store's own kind that a handler writes its effects in.

    It holds what it must hold (on SQLite the only write lock), so it is bounded in time.
    """

    @property
    def connection(self) -> Any:
        """The database's own connection object."""
        ...

    async def commit(self, changes: Sequence[Change]) -> bool:
        """Apply the changes in this transaction and commit both.

        False if any was refused: then everything is rolled back. TransactionTimeout if its time
        had run out: it was rolled back already. RunError if somebody ended it meanwhile.
        """
        ...

    def check(self) -> None:
        """TransactionTimeout if its time has run out."""
        ...

    async def rollback(self) -> None:
        """Undo everything; harmless when already over."""
        ...


class Transactions(Protocol):
    """The capability TRANSACTIONS."""

    async def add_within(self, connection: Any, jobs: Sequence[NewJob]) -> list[Added]:
        """`add` inside the caller's own open transaction: the jobs exist when it commits.

        A refused job leaves that transaction as it was, and so do taken keys. InvalidJob if the
        connection is not one to this store, or has no transaction that could carry a job.
        """
        ...

    async def begin(self, *, within: timedelta, blocking: bool = False) -> Transaction:
        """Open a transaction; it is rolled back by itself when `within` has passed.

        `blocking`: for a handler in a thread, whose connection is used without `await`.
        """
        ...


class Store(
    Jobs,
    Runs,
    RecoveryReads,
    Queues,
    Reservations,
    Schedules,
    Groups,
    Documents,
    Workers,
    Locks,
    Notifications,
    AuditReads,
    InsightReads,
    Moving,
    Protocol,
):
    """All of it. Opened before use; closing twice is fine."""

    @property
    def capabilities(self) -> frozenset[Capability]: ...

    def exists(self) -> bool:
        """Whether there is something to open; `open` would otherwise create it."""
        ...

    async def open(self) -> None:
        """Create or migrate what is needed; refuses a store that is foreign or newer."""
        ...

    async def close(self) -> None:
        """Finish what was asked and let go of everything."""
        ...

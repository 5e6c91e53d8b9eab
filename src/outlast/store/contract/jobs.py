"""Contract: add, claim, change and find jobs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

from outlast.core.change import Change
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.metadata import labels_of
from outlast.core.overview import JobCounts
from outlast.core.run import Claims, Lease, LeaseHolder
from outlast.core.state import State

MAX_PROMOTED_PER_CLAIM: Final = 10_000
"""Most due jobs that one claim promotes; more of them take several claims."""


MAX_DUE_SEEN: Final = 100
"""Jobs that a claim of nothing looks at for the next one that becomes due."""

MAX_LABEL_SCAN: Final = 50_000
"""Most jobs that one `find` by labels reads on a store without rows for labels."""

MAX_CLAIM_BYTES: Final = 16 * 1024 * 1024
"""Params of one claim at which the SQL stores stop, so that its reply stays small."""


class Added(NamedTuple):
    """Result of `add` for one job.

    `created` is True if this call stored it. Otherwise `id` is the job in its place: the holder of
    its key or slot (the root of that chain), or the job itself if it was stored before. `refused`
    says why the store cannot keep it; nothing of it was written then. `replaced`: the job in its
    place was never claimed, and has its params now.
    """

    id: JobId
    created: bool
    refused: str | None = None
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class Renewal:
    """Result of `renew` for one lease."""

    held: bool
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job that has ended, as pruning by type looks at it; `at` and `seq` order them."""

    id: JobId
    type: str
    at: datetime
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Jobs that `find` lists; None matches every job."""

    states: frozenset[State] | None = None
    queue: str | None = None
    type: str | None = None
    group: str | None = None  # id of a group: its members, every link of a chain
    key: str | None = None  # chains that hold this key, in any bucket, or this active key
    prefix: str | None = None  # first characters of the job id
    labels: frozenset[str] = frozenset()  # all of them; see `core/metadata.py`
    since: datetime | None = None  # created then or later

    def fits(self, job: Job) -> bool:
        """Return whether the job matches, ignoring `group` and `key`."""
        return (
            (self.states is None or job.state in self.states)
            and (self.queue is None or job.queue == self.queue)
            and (self.type is None or job.type == self.type)
            and (self.prefix is None or job.id.startswith(self.prefix))
            and self.is_recent(job)
            and (not self.labels or self.labels <= labels_of(job.metadata))
        )

    def is_recent(self, job: Job) -> bool:
        """Return whether the job was created at `since` or later."""
        return self.since is None or job.created_at >= self.since


class Jobs(Protocol):
    """Jobs from their enqueue to their end."""

    async def add(self, jobs: Sequence[NewJob]) -> list[Added]:
        """Store each job with its keys and slot; return the results in the order given.

        Atomic per job. A job that is due is `queued`, any other `scheduled`; its `created_at` is
        the store's time. In a `position` queue it goes behind the last waiting job of its
        priority, in the order given.

        A job whose slot, key or active key (checked in that order) has a holder is not stored, and
        the holder's id is returned. Of two such jobs in one call, or in two processes, one wins.
        Adding a stored id again changes nothing. A taken key is reported before any other fault.

        A `window` is asked last. It ends a span after the creation of its job, by the store's
        clock; without a span, at the first claim of its job. After its end the next job takes it.
        If the job `replaces` and the holder has its type and was never claimed, the holder takes
        its params, its priority and, if it has one, its due time, in one write with the answer.
        The due time is at most `at_most` after the holder's creation. Repeating such an add finds
        its event `edited` at the holder, also after the claim, and changes nothing; only an active
        key is free again when the chain of its holder has ended.

        If the store fails, the error has in `answers` the results of the jobs that were answered;
        any other job may be stored or not. Repeating the call with the same jobs is safe.

        `retry_of` must name a finished job without a successor. The new job joins its chain, and
        that job gets the event `retried` with the new id as detail.
        """
        ...

    async def get(self, job_ids: Sequence[JobId]) -> list[Job | None]:
        """Return each job, in the order asked; None for an unknown id."""
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
        count: int = 0,
    ) -> Claims:
        """Claim up to `limit` jobs of these types, and up to `prefetch` more, in claim order.

        First promotes due jobs of any queue (`scheduled` and `retry_wait` → `queued`). The claim
        order is `priority DESC, position, available_at, created_at, seq` over the queued jobs.
        Claiming a job raises its token by one, opens its run and starts its lease, atomically; a
        job goes to one claim only.

        Not claimed are jobs past their start deadline, which applies to the first start alone, and
        `once` jobs whose name runs in any queue or was claimed earlier in this call. Beyond
        `limit` only `lease` jobs without a lost run are claimed, because they wait in the worker
        for a free slot, and none with one attempt left, which the worker's death would spend;
        others are passed over.

        If the store fails in a part of a claim, the claims of the other parts are returned; the
        error is raised only if there are none.

        A claim may stop early, after at least one job, where the params of the claimed jobs are
        large; the next claim goes on there.

        A paused queue yields nothing. Of a queue with a `concurrency` no claim raises the number
        of open runs above it, and none goes beyond `limit`.

        With a `count`, a claim of at least one job has in `waiting` how many queued jobs of these
        types are left in the queue, counted up to `count`; jobs that are claimed at the same moment
        may be in it. A claim of nothing has in `due_in` how long none of the `scheduled` and
        `retry_wait` jobs of the queue and these types that is not due becomes due; None if there is
        none. It may be less, because it is read from the next `MAX_DUE_SEEN` jobs of all queues,
        and says nothing of jobs that change later.
        """
        ...

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        """Write each change whose token is current and whose guard holds; True where it did.

        Atomic per change: the run it closes, the new state of the job, its successor, its active
        key (freed, or passed to the successor) and its event. Changes are applied in the order
        given, also when two concern one job.

        False means that the job has moved on. Nothing is written then, except that a refused write
        of a former holder (guard `open`) records a `late_write_refused` event. An end that is on
        record exactly as the change has it (status, reason, error, result, exit code, log path)
        was written before, and its reply was lost: True, and nothing is written. False also answers
        a change that cannot be stored: a result that is not JSON or over 256 KiB, an error over
        64 KiB, a log path over 4,096 characters, an exit code over 32 bits, or invalid text.

        If the store fails, the error has in `answers` the results of the changes that were
        answered; any other may be written or not. Repeating an end is safe, as said above.

        A change that closes a run writes its exit code and log path once, with the end, and its
        `log` as `write_logs` does; a chunk that cannot be stored does not refuse the end.

        A released job keeps its position in its queue; with a delay it is due that much later. A
        successor goes behind the waiting jobs of its priority. If the job has a successor already,
        a change of an ended job is refused; one of a detached job ends it and keeps the successor.

        A change with a `place` moves a waiting job exactly there among the waiting jobs of its
        queue and priority, whatever their state; the order of the others stays, and no position
        becomes 0. It is refused if its target does not wait, has another queue or priority, or is
        the job itself. A swap exchanges two positions.

        A change with an `edit` writes the given fields; params only of a job that was never
        claimed. With another priority the job goes behind the waiting jobs of that priority (in a
        `scheduled` queue by its due time). A new due time counts by the store's clock.
        """
        ...

    async def renew(self, leases: Sequence[Lease], *, span: timedelta) -> list[Renewal]:
        """Extend each lease whose token is current to `span` from now, even an expired one.

        If the store fails, the error has in `answers` the results of the leases that were answered.
        """
        ...

    async def expired_leases(self, *, limit: int) -> list[Job]:
        """Return running jobs whose lease has expired, the longest expired first."""
        ...

    async def missed_start_deadline(self, *, limit: int) -> list[Job]:
        """Return queued jobs that never started and are past their start deadline.

        The earliest deadline comes first.
        """
        ...

    async def promote_due(self, *, limit: int) -> int:
        """Move up to `limit` due jobs to `queued`, the earliest first; return how many moved.

        If the store fails for some, it moves the others before it raises the error.
        """
        ...

    async def peek(self, queue: str, *, limit: int) -> list[Job]:
        """Return the next jobs of a queue in claim order; changes nothing.

        Due jobs that the next claim would promote count as `queued`. Pause, concurrency and other
        obstacles to a claim are ignored. The direct job of the active reservation is left out: it
        is not part of the queue.
        """
        ...

    async def find(self, what: Filter, *, limit: int, before: int | None = None) -> list[Job]:
        """Return jobs that match, the newest `seq` first; `before` is the last `seq` seen.

        A detached job (see `RecoveryReads`) is listed only if the filter has no states. A page
        with `since` may have fewer than `limit` jobs; the last page is empty.

        The SQL stores find labels by rows of their own. The key-value stores read the jobs down to
        `since`, at most `MAX_LABEL_SCAN` per call: a page may have fewer than `limit` jobs then,
        and if it would have none, InvalidArgument says how to narrow the filter.
        """
        ...

    async def counts(self) -> JobCounts:
        """Return the number of jobs by queue and state; entries of 0 are left out.

        A store that would have to read every job may stop, and then says which numbers are capped.
        """
        ...

    async def chain(self, job_id: JobId) -> list[Job]:
        """Return the retry chain of this job, root first; empty for an unknown id."""
        ...

    async def prune(self, *, older_than: timedelta, limit: int, chains: bool = True) -> int:
        """Delete up to `limit` chains that ended that long ago, with their runs and events.

        Only whole chains whose last job succeeded, was skipped or was cancelled; never a dead
        letter or a failure. Members of a group stay until it is over, and its record goes with the
        last of them. Keys and slots stay for ever, so that no job is ever repeated; of the windows
        that ended, up to `limit` are deleted. Workers that
        stopped that long ago, or were last seen then and are not alive, are removed from the
        registry, after MIN_REGISTRATION_AGE at the earliest; their runs still name them. Of the
        `limit` oldest events of no job, those that old are deleted. Returns the number of deleted
        jobs.

        Without `chains` it deletes no job, only what belongs to none.
        """
        ...

    async def ended_jobs(
        self, *, older_than: timedelta, after: EndedJob | None, limit: int
    ) -> list[EndedJob]:
        """Return jobs that ended well that long ago, the earliest first, behind `after`.

        They succeeded, were skipped or were cancelled. It writes nothing, and its cost depends on
        `limit` alone.
        """
        ...

    async def prune_jobs(self, jobs: Sequence[EndedJob], *, older_than: timedelta) -> int:
        """Delete the chains that end with these jobs, as `prune` does; return how many jobs.

        What `prune` would keep is kept: a job with a successor, a member of a group that is not
        over, a job that has not ended that long ago.
        """
        ...

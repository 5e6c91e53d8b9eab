"""Contract: add, claim, change and find jobs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

from outlast.core.decide import Change
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.run import Claim, Lease, LeaseHolder
from outlast.core.state import State

MAX_PROMOTED_PER_CLAIM: Final = 10_000
"""How many jobs one claim promotes at most; more that fall due together take several claims."""


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

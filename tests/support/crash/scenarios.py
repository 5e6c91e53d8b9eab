"""One small world and one act for every writing verb: what the crash test kills half-way.

Each act calls one verb once. The world before it, the ids and the clock are the same every time,
so that two runs of a scenario leave the same store, byte for byte.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from outlast.core.decide import Change, Guard, JobView, Transition, decide
from outlast.core.delivery import Delivery
from outlast.core.event import (
    Abandoned,
    Abandonment,
    CancelRequested,
    Event,
    Failed,
    GivenUp,
    Lost,
    Misfired,
    Released,
    Skipped,
    Snoozed,
    Stopped,
    Succeeded,
    Unblocked,
)
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, Job, NewJob, Slot
from outlast.core.ordering import Ordering
from outlast.core.reservation import NewReservation, Reservation, ReservationId
from outlast.core.run import Claim, LeaseHolder
from outlast.core.state import Loss, State
from outlast.core.worker import WorkerInfo
from outlast.store.contract import Store, check_maintenance
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.testing.clock import START, FakeClock

SECOND = timedelta(seconds=1)
LEASE = timedelta(seconds=15)
HOLDER = LeaseHolder(instance_id="worker-1", boot_id="boot-1")
TYPES = ("lease", "linked", "once")
LINKED, ONCE = {"delivery": Delivery.LINKED}, {"delivery": Delivery.ONCE}


@dataclass(slots=True)
class World:
    """A store, where it is, its clock, and ids that count."""

    store: Store
    path: Path
    clock: FakeClock
    numbers: Iterator[int]

    def new_id(self) -> JobId:
        return JobId(f"00000000-0000-7000-8000-{next(self.numbers):012x}")

    def job(self, **over: Any) -> NewJob:
        delivery = over.get("delivery", Delivery.LEASE)
        base = {"id": self.new_id(), "type": str(delivery), "name": str(delivery), "params": "{}"}
        return NewJob(**{**base, **over})

    async def add(self, **over: Any) -> JobId:
        return (await self.store.add([self.job(**over)]))[0].id

    async def claim(self, limit: int = 10, prefetch: int = 0) -> list[Claim]:
        return await self.store.claim(
            HOLDER, queue="default", types=TYPES, limit=limit, prefetch=prefetch, lease=LEASE
        )

    async def started(self, **over: Any) -> Claim:
        await self.add(**over)
        return (await self.claim())[-1]

    async def settle(self, standing: JobView, event: Event) -> bool:
        return (await self.store.apply([decide(standing, event, new_id=self.new_id)]))[0]

    async def get(self, job_id: JobId) -> Job:
        job = (await self.store.get([job_id]))[0]
        assert job is not None
        return job


Prepare = Callable[[World], Awaitable[Any]]
Act = Callable[[World, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`prepare` runs undisturbed and answers what `act` needs; `act` is killed.

    `opened`: the store is open when `prepare` begins. Not `sound`: its world has rows that refer
    to nothing, on purpose.
    """

    prepare: Prepare
    act: Act
    opened: bool = True
    sound: bool = True


SCENARIOS: dict[str, Scenario] = {}


def scenario(prepare: Prepare) -> Callable[[Act], None]:
    """Register an act, under its own name, in the world that `prepare` makes."""

    def register(act: Act) -> None:
        SCENARIOS[getattr(act, "__name__", "")] = Scenario(prepare, act)

    return register


def settling(event: Event, **over: Any) -> Scenario:
    """End a run of a job made with `over` by `event`."""

    async def prepare(w: World) -> Claim:
        return await w.started(active_key="key", **over)

    async def act(w: World, claim: Claim) -> None:
        await w.settle(claim, event)

    return Scenario(prepare, act)


def deciding(prepare: Callable[[World], Awaitable[JobId]], event: Event) -> Scenario:
    """Apply `event` to a job that does not run."""

    async def make(w: World) -> Job:
        return await w.get(await prepare(w))

    async def act(w: World, job: Job) -> None:
        await w.settle(job, event)

    return Scenario(make, act)


async def nothing(_: World) -> None:
    return


async def some_waiting(w: World) -> None:
    """Plain jobs, one due later, a chain, two `once` of one name, one that was lost before."""
    lost = await w.started()
    await w.settle(lost, Lost(Loss.OWNER_DEAD))
    for over in ({}, {}, {"delay": SECOND}, LINKED, ONCE, ONCE):
        await w.add(**over)
    w.clock.advance(SECOND)


@scenario(nothing)
async def add_plain(w: World, _: None) -> None:
    await w.store.add([w.job(), w.job(), w.job(priority=3), w.job(delay=SECOND)])


@scenario(nothing)
async def add_refused_among_good(w: World, _: None) -> None:
    await w.store.add([w.job(), w.job(params="x"), w.job()])


async def _ended_chain(w: World) -> JobId:
    await w.store.set_queue(Queue(name="default", ordering=Ordering.POSITION))
    claim = await w.started(max_attempts=1, **LINKED)
    await w.settle(claim, Failed("broke"))
    return claim.id


@scenario(_ended_chain)
async def add_with_everything(w: World, dead: JobId) -> None:
    slot, key = Slot(series="daily", at=START), DedupeKey(key="k", bucket="b")
    await w.store.add([w.job(slot=slot, key=key, active_key="a", retry_of=dead), w.job()])


@scenario(some_waiting)
async def claim_some(w: World, _: None) -> None:
    await w.claim(limit=3, prefetch=3)


@scenario(some_waiting)
async def promote_due(w: World, _: None) -> None:
    await w.store.promote_due(limit=10)


async def _two_started(w: World) -> list[Claim]:
    for over in ({}, LINKED):
        await w.add(**over)
    return await w.claim()


@scenario(_two_started)
async def renew(w: World, claims: list[Claim]) -> None:
    await w.store.renew([claim.lease for claim in claims], span=LEASE)


@scenario(_two_started)
async def report(w: World, claims: list[Claim]) -> None:
    first, second = (claim.lease for claim in claims)
    await w.store.record_progress([(first, "1"), (second, "2"), (first, "3")])


@scenario(_two_started)
async def attach_open(w: World, claims: list[Claim]) -> None:
    await w.store.attach(claims[0].lease, ["a.txt"])


@scenario(_two_started)
async def apply_mixed(w: World, claims: list[Claim]) -> None:
    events = [Failed("broke", SECOND), Failed("broke", SECOND)]
    pairs = zip(claims, events, strict=True)
    changes = [decide(claim, event, new_id=w.new_id) for claim, event in pairs]
    await w.store.apply([*changes, changes[0]])


async def _one_ended(w: World) -> Claim:
    claim = await w.started()
    await w.settle(claim, Succeeded("1"))
    return claim


@scenario(_one_ended)
async def attach_closed(w: World, claim: Claim) -> None:
    await w.store.attach(claim.lease, ["a.txt"])


@scenario(_one_ended)
async def late_write(w: World, claim: Claim) -> None:
    await w.settle(claim, Failed("too late"))


@scenario(_one_ended)
async def prune(w: World, _: Claim) -> None:
    w.clock.advance(SECOND)
    await w.store.prune(older_than=timedelta(0), limit=10)


WORKER = WorkerInfo(
    instance_id=HOLDER.instance_id,
    boot_id=HOLDER.boot_id,
    host="here",
    pid=7,
    queues=("default",),
    types=TYPES,
    concurrency=10,
)


@scenario(nothing)
async def enlist(w: World, _: None) -> None:
    await w.store.register_worker(WORKER)


async def _enlisted(w: World) -> None:
    await w.store.register_worker(WORKER)


@scenario(_enlisted)
async def beat(w: World, _: None) -> None:
    await w.store.heartbeat(HOLDER, span=LEASE)


@scenario(_enlisted)
async def retire(w: World, _: None) -> None:
    await w.store.deregister_worker(HOLDER)


async def _retired(w: World) -> None:
    await w.store.register_worker(WORKER)
    await w.store.deregister_worker(HOLDER)
    w.clock.advance(SECOND)


@scenario(_retired)
async def prune_workers(w: World, _: None) -> None:
    await w.store.prune(older_than=timedelta(0), limit=10)


@scenario(nothing)
async def set_queue(w: World, _: None) -> None:
    await w.store.set_queue(Queue(name="default", ordering=Ordering.POSITION))


@scenario(nothing)
async def pause(w: World, _: None) -> None:
    await w.store.pause("default", reason="deploy", span=SECOND)


async def _paused(w: World) -> None:
    await w.store.pause("default", reason=None, span=None)


@scenario(_paused)
async def resume(w: World, _: None) -> None:
    await w.store.resume("default")


async def _limited(w: World) -> None:
    await w.store.set_queue(Queue(name="default", concurrency=2))
    for _ in range(3):
        await w.add()
    await w.claim(limit=1)


@scenario(_limited)
async def claim_limited(w: World, _: None) -> None:
    assert len(await w.claim()) == 1


@scenario(nothing)
async def create_record(w: World, _: None) -> None:
    await w.store.swap("template", "daily", expected=None, value="1")


async def _one_record(w: World) -> int:
    record = await w.store.swap("template", "daily", expected=None, value="1")
    assert record is not None
    return record.version


@scenario(_one_record)
async def write_record(w: World, version: int) -> None:
    await w.store.swap("template", "daily", expected=version, value="2")


@scenario(_one_record)
async def delete_record(w: World, version: int) -> None:
    await w.store.swap("template", "daily", expected=version, value=None)


async def reserving(w: World, **over: Any) -> Reservation:
    """A direct job before the others that wait, and the queue held for it."""
    number = ReservationId(w.new_id())
    new = NewReservation(id=number, caller="caller.1", request="req-7", span=LEASE)
    reserved = await w.store.reserve(new, w.job(**{"max_attempts": 1, **over}))
    assert reserved.reservation is not None
    return reserved.reservation


async def _one_waits(w: World) -> None:
    await w.store.set_queue(Queue(name="default", ordering=Ordering.POSITION, concurrency=1))
    await w.add()


async def _reserved(w: World) -> Reservation:
    await _one_waits(w)
    return await reserving(w)


async def _reserved_without_limit(w: World) -> Reservation:
    await w.add()
    return await reserving(w)


async def _direct_runs(w: World) -> Claim:
    await _reserved(w)
    [claim] = await w.claim()
    return claim


@scenario(_one_waits)
async def reserve(w: World, _: None) -> None:
    await reserving(w)


@scenario(_reserved)
async def reserve_in_vain(w: World, _: Reservation) -> None:
    await reserving(w)


@scenario(_reserved)
async def keep(w: World, held: Reservation) -> None:
    assert await w.store.extend_reservation(held.id, span=2 * LEASE)


@scenario(_reserved)
async def claim_direct(w: World, held: Reservation) -> None:
    assert [claim.id for claim in await w.claim()] == [held.job_id]


@scenario(_reserved_without_limit)
async def claim_direct_without_limit(w: World, held: Reservation) -> None:
    assert [claim.id for claim in await w.claim()] == [held.job_id]


@scenario(_direct_runs)
async def renew_direct(w: World, claim: Claim) -> None:
    w.clock.advance(SECOND)
    await w.store.renew([claim.lease], span=LEASE)


@scenario(_direct_runs)
async def succeed_direct(w: World, claim: Claim) -> None:
    assert await w.settle(claim, Succeeded("1"))


@scenario(_direct_runs)
async def lose_direct(w: World, claim: Claim) -> None:
    assert await w.settle(claim, Lost(Loss.OWNER_DEAD))


async def _silent(w: World) -> Job:
    held = await _reserved(w)
    w.clock.advance(LEASE)
    return await w.get(held.job_id)


@scenario(_silent)
async def abandon_silent(w: World, job: Job) -> None:
    assert await w.settle(job, Abandoned(Abandonment.CALLER_SILENT))


@scenario(_silent)
async def abandon_dead(w: World, job: Job) -> None:
    assert await w.settle(job, Abandoned(Abandonment.OWNER_DEAD))


async def _direct_ended(w: World) -> None:
    await w.settle(await _direct_runs(w), Succeeded("1"))
    w.clock.advance(SECOND)


@scenario(_direct_ended)
async def prune_direct(w: World, _: None) -> None:
    await w.store.prune(older_than=timedelta(0), limit=10)


async def _lapsed(w: World) -> Job:
    claim = await w.started()
    w.clock.advance(2 * LEASE)
    return await w.get(claim.id)


@scenario(_lapsed)
async def reclaim(w: World, job: Job) -> None:
    await w.settle(job, Lost(Loss.LEASE_EXPIRED))


async def _blocked(w: World) -> JobId:
    job_id = await w.add()
    block = Transition(guard=Guard.STATE, to=State.BLOCKED)
    await w.store.apply([Change(job_id, 0, block, was=State.QUEUED)])
    return job_id


async def _overdue(w: World) -> JobId:
    job_id = await w.add(start_within=timedelta(0), **ONCE)
    w.clock.advance(SECOND)
    return job_id


async def _retrying(w: World) -> JobId:
    claim = await w.started()
    await w.settle(claim, Failed("broke", SECOND))
    return claim.id


async def _closed(w: World) -> JobId:
    claim = await w.started(**LINKED)
    await w.settle(claim, Failed("broke"))
    return claim.id


async def _cancel_asked(w: World) -> Claim:
    claim = await w.started()
    await w.settle(claim, CancelRequested())
    return claim


@scenario(_cancel_asked)
async def retry_yields_to_cancel(w: World, claim: Claim) -> None:
    await w.settle(claim, Failed("broke"))


SCENARIOS |= {
    "succeed": settling(Succeeded('"done"')),
    "skip": settling(Skipped("empty")),
    "stop": settling(Stopped("asked")),
    "fail_retry": settling(Failed("broke", SECOND)),
    "fail_dead": settling(Failed("broke", permanent=True)),
    "fail_linked": settling(Failed("broke", SECOND), **LINKED),
    "fail_once": settling(Failed("broke"), **ONCE),
    "lose": settling(Lost(Loss.OWNER_DEAD)),
    "lose_linked": settling(Lost(Loss.OWNER_DEAD), **LINKED),
    "lose_once": settling(Lost(Loss.TIMEOUT), **ONCE),
    "lose_at_startup": settling(Lost(Loss.STARTUP_RECOVERY, "left by boot-0")),
    "release": settling(Released("shutdown")),
    "snooze": settling(Snoozed(SECOND)),
    "cancel_running": settling(CancelRequested("no")),
    "cancel_waiting": deciding(lambda w: w.add(active_key="key"), CancelRequested("no")),
    "unblock": deciding(_blocked, Unblocked()),
    "misfire": deciding(_overdue, Misfired()),
    "give_up": deciding(_retrying, GivenUp("hopeless")),
    "bury": deciding(_closed, GivenUp("hopeless")),
}


@scenario(some_waiting)
async def read_everything(w: World, _: None) -> None:
    """Read only: a reader that dies changes nothing."""
    [job, *_rest] = await w.store.find(Filter(), limit=10)
    await w.store.find(Filter(states=frozenset({State.DEAD_LETTER})), limit=1)
    await w.store.find(Filter(key="k"), limit=1)
    await w.store.find(Filter(prefix=job.id), limit=1)
    await w.store.overview(span=SECOND)
    for each in (job, *_rest):
        await w.store.wait_facts(each.id)
    await w.store.describe()
    await check_maintenance(w.store, abandoned=SECOND)
    await w.store.expired_leases(limit=1)
    await w.store.missed_start_deadline(limit=1)
    await w.store.peek("default", limit=5)
    await w.store.counts()
    await w.store.chain(job.id)
    await w.store.runs(job.id)
    await w.store.events(job.id)
    await w.store.events(None)
    await w.store.stream(limit=5)
    await w.store.document("template", "daily")
    await w.store.documents("template")
    await w.store.running_under_other_boots(besides="boot-2", instance_id="worker-1", limit=5)
    await w.store.detached_jobs(limit=5)
    await w.store.missing_successors(limit=5)
    await w.store.queue("default")
    await w.store.queues()
    await w.store.reservations(limit=5)
    await w.store.reservations(active_only=True, limit=5)
    await w.store.reservation(ReservationId(job.id))
    await w.store.expired_reservations(limit=5)
    await w.store.workers()
    await w.store.job_count()
    await w.store.audit_jobs(after=0, limit=5)
    await w.store.dangling_records(limit=5)
    await w.store.get([job.id])

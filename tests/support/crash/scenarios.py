"""One small world and one act for every writing verb: what the crash test kills half-way.

Each act calls one verb once. The world before it, the ids and the clock are the same every time,
so that two runs of a scenario leave the same store, byte for byte.
"""

from datetime import timedelta

from outlast.core.decide import Change, Guard, Transition, decide
from outlast.core.event import (
    CancelRequested,
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
    Unfit,
)
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, Job, Slot
from outlast.core.ordering import Ordering
from outlast.core.reservation import ReservationId
from outlast.core.run import Claim
from outlast.core.run_log import LogChunk, LogWrite
from outlast.core.state import Loss, State
from outlast.core.worker import WorkerInfo
from outlast.store.contract import check_maintenance
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.testing.clock import START
from support.crash.scenarios_direct import DIRECT
from support.crash.scenarios_windows import WINDOWS
from support.crash.world import (
    HOLDER,
    LEASE,
    LINKED,
    ONCE,
    SECOND,
    TAGGED,
    TYPES,
    Scenario,
    World,
    deciding,
    nothing,
    register_in,
    settling,
)

SCENARIOS: dict[str, Scenario] = {**DIRECT, **WINDOWS}
scenario = register_in(SCENARIOS)


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
    await w.store.add([w.job(slot=slot, key=key, active_key="a", retry_of=dead, **TAGGED), w.job()])


async def _none_due(w: World) -> None:
    await w.add(delay=timedelta(hours=1))


@scenario(some_waiting)
async def claim_some(w: World, _: None) -> None:
    await w.claim(limit=3, prefetch=3)


@scenario(some_waiting)
async def claim_and_count(w: World, _: None) -> None:
    await w.claim(limit=1, count=10)


@scenario(_none_due)
async def claim_of_nothing(w: World, _: None) -> None:
    await w.claim()


@scenario(some_waiting)
async def claim_large(w: World, _: None) -> None:
    """A claim that stops at the size of the params, where the store has such a limit."""
    w.store.max_claim_bytes = 1  # type: ignore[attr-defined]
    await w.claim(limit=3, prefetch=3)


@scenario(some_waiting)
async def promote_due(w: World, _: None) -> None:
    await w.store.promote_due(limit=10)


async def _two_started(w: World) -> list[Claim]:
    for over in ({}, LINKED):
        await w.add(**over, **TAGGED)
    return await w.claim()


@scenario(_two_started)
async def renew(w: World, claims: list[Claim]) -> None:
    await w.store.renew([claim.lease for claim in claims], span=LEASE)


@scenario(_two_started)
async def report(w: World, claims: list[Claim]) -> None:
    first, second = (claim.lease for claim in claims)
    await w.store.record_progress([(first, "1"), (second, "2"), (first, "3")])


LOG = LogWrite((LogChunk(1, 1, "one"), LogChunk(2, 1, "two")))
MORE = LogWrite((LogChunk(1, 2, "one and"), LogChunk(3, 1, "three")), (2,))


async def _two_logging(w: World) -> list[Claim]:
    claims = await _two_started(w)
    await w.store.write_logs([(claim.lease, LOG) for claim in claims])
    return claims


@scenario(_two_logging)
async def write_logs(w: World, claims: list[Claim]) -> None:
    await w.store.write_logs([(claims[0].lease, MORE)])


@scenario(_two_logging)
async def succeed_with_log(w: World, claims: list[Claim]) -> None:
    change = decide(claims[0], Succeeded(), new_id=w.new_id)
    await w.store.apply([change.with_log(MORE)])


@scenario(_two_logging)
async def fail_with_log(w: World, claims: list[Claim]) -> None:
    change = decide(claims[0], Failed("broke"), new_id=w.new_id)
    await w.store.apply([change.with_log(MORE)])


@scenario(_two_logging)
async def read_log(w: World, claims: list[Claim]) -> None:
    await w.store.log_chunks(claims[0].id, limit=10)
    await w.store.log_lengths(claims[0].id)


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
    claim = await w.started(**TAGGED)
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


@scenario(_one_ended)
async def prune_by_type(w: World, _: Claim) -> None:
    w.clock.advance(SECOND)
    old = await w.store.ended_jobs(older_than=timedelta(0), after=None, limit=10)
    await w.store.prune_jobs(old, older_than=timedelta(0))


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
    "refuse": settling(Unfit("no field", "worker-1", 60 * SECOND)),
    "refuse_linked": settling(Unfit("no field", "worker-1", 60 * SECOND), **LINKED),
    "refuse_once": settling(Unfit("no field", "worker-1", 60 * SECOND), **ONCE),
    "refuse_for_the_last_time": settling(Unfit("no field", "worker-1", timedelta(0))),
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
    await w.store.find(Filter(labels=frozenset({"tag:a"})), limit=1)
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
    await w.store.refusals([job.id])
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

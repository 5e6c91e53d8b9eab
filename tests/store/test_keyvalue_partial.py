"""A transaction that fails takes nothing from the others of the same call."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest

from outlast.core.decide import decide, succeed
from outlast.core.delivery import Delivery
from outlast.core.event import EventKind, Lost
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey
from outlast.core.run import Claim, Lease
from outlast.core.state import Loss, State
from outlast.errors import OperatorError, StoreBusy, StoreUnavailable
from outlast.store.contract.queues import Queue
from outlast.store.contract.schedules import FireResult
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Write
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    kinds,
    make_firing,
    make_job,
    new_id,
    put,
    put_schedule,
    settle,
    started,
    take_many,
)
from outlast.testing.stores import ids_for_test
from outlast.verify import verify
from support.engines.faulty import Fault, FaultyEngine, every, fine, those_of
from support.engines.memory import MemoryEngine

COUNT = 12
NOT_WRITTEN_OR_LOST = [Fault.THROTTLED, Fault.SERVER_ERROR, Fault.TIMED_OUT]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine() -> FaultyEngine:
    return FaultyEngine(MemoryEngine(most_writes=10))  # two claims, or one end, per transaction


@pytest.fixture
async def store(engine: FaultyEngine, clock: FakeClock) -> AsyncIterator[KeyValueStore]:
    store = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))
    await store.open()
    yield store
    engine.choose = fine
    assert [found async for found in _violations(store)] == []
    await store.close()


async def _violations(store: KeyValueStore) -> AsyncIterator[str]:
    for violation in (await verify(store)).violations:
        yield str(violation)


async def _put_many(store: KeyValueStore, count: int = COUNT) -> list[JobId]:
    return [await put(store, max_attempts=1) for _ in range(count)]


async def _running(store: KeyValueStore, ids: list[JobId]) -> set[JobId]:
    return {job.id for job in await store.get(ids) if job and job.state is State.RUNNING}


@pytest.mark.parametrize("fault", NOT_WRITTEN_OR_LOST)
async def test_claim_keeps_every_run_it_got(
    store: KeyValueStore, engine: FaultyEngine, fault: Fault
) -> None:
    ids = await _put_many(store)
    engine.choose = those_of(ids[:1], fault)

    claims = await take_many(store)

    assert {claim.id for claim in claims} >= set(ids[2:])
    assert {claim.id for claim in claims} == await _running(store, ids)


@pytest.mark.parametrize("fault", [Fault.THROTTLED, Fault.SERVER_ERROR])
async def test_claim_that_got_none_raises(
    store: KeyValueStore, engine: FaultyEngine, fault: Fault
) -> None:
    ids = await _put_many(store, 2)
    engine.choose = those_of(ids, fault)

    with pytest.raises(OperatorError):
        await take_many(store)

    assert await _running(store, ids) == set()


async def test_run_whose_claim_timed_out_goes_to_its_worker_with_the_next_claim(
    store: KeyValueStore, engine: FaultyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job_id] = await _put_many(store, 1)
    engine.choose = those_of([job_id], Fault.TIMED_OUT)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "get", _unreachable_after(engine))
        with pytest.raises(StoreUnavailable):
            await take_many(store)
    engine.choose = fine
    assert await _running(store, [job_id]) == {job_id}

    others = await take_many(store, holder="worker-2")
    [claim] = await take_many(store)

    assert (claim.id, claim.token, others) == (job_id, 1, [])
    assert await store.apply([succeed(claim.id, claim.token, "1")]) == [True]


def _unreachable_after(engine: FaultyEngine):
    get = engine.get

    async def until_failed(keys):
        if engine.failed:
            raise StoreUnavailable("no answer")
        return await get(keys)

    return until_failed


async def test_run_whose_claim_commits_after_all_looks_goes_to_its_worker(
    store: KeyValueStore, engine: FaultyEngine
) -> None:
    [job_id] = await _put_many(store, 1)
    engine.choose = those_of([job_id], Fault.COMMITS_LATER)
    with pytest.raises(StoreUnavailable):
        await take_many(store)
    engine.choose = fine
    assert await engine.commit_late() == [True]

    [claim] = await take_many(store)

    assert (claim.id, claim.token) == (job_id, 1)


async def test_unanswered_run_is_not_kept_from_others(
    store: KeyValueStore, engine: FaultyEngine
) -> None:
    [job_id] = await _put_many(store, 1)
    engine.choose = those_of([job_id], Fault.COMMITS_LATER)
    with pytest.raises(StoreUnavailable):
        await take_many(store)
    engine.choose = fine

    [claim] = await take_many(store, holder="worker-2")

    assert await engine.commit_late() == [False]
    assert await take_many(store) == []
    assert await store.apply([succeed(claim.id, claim.token, "1")]) == [True]


async def test_unanswered_runs_come_within_the_limit_of_the_next_claim(
    store: KeyValueStore, engine: FaultyEngine
) -> None:
    ids = await _put_many(store, 6)
    engine.choose = those_of(ids, Fault.COMMITS_LATER)
    with pytest.raises(StoreUnavailable):
        await take_many(store)
    engine.choose = fine
    await engine.commit_late()

    claims = [await take_many(store, limit=4), await take_many(store, limit=4, prefetch=4)]

    assert [len(some) for some in claims] == [4, 2]
    assert {claim.id for some in claims for claim in some} == set(ids)


@pytest.mark.parametrize("fault", NOT_WRITTEN_OR_LOST)
async def test_claim_of_a_limited_queue_keeps_what_it_got(
    store: KeyValueStore, engine: FaultyEngine, fault: Fault
) -> None:
    await store.set_queue(Queue(name="default", concurrency=3))
    ids = await _put_many(store, 4)
    engine.choose = those_of([ids[2]], fault)

    claims = await take_many(store)

    wanted = 3 if fault is Fault.TIMED_OUT else 2
    assert [claim.id for claim in claims] == ids[:wanted]
    assert await _running(store, ids) == set(ids[:wanted])


async def _claims(store: KeyValueStore, count: int = COUNT) -> list[Claim]:
    await _put_many(store, count)
    return await take_many(store)


@pytest.mark.parametrize("fault", NOT_WRITTEN_OR_LOST)
async def test_apply_answers_each_change_and_its_repetition_is_no_late_write(
    store: KeyValueStore, engine: FaultyEngine, fault: Fault
) -> None:
    claims = await _claims(store)
    changes = [succeed(claim.id, claim.token, "1") for claim in claims]
    engine.choose = those_of([claims[3].id], fault)

    with pytest.raises(OperatorError) as caught:
        await store.apply(changes)
    engine.choose = fine
    again = await store.apply(changes)

    assert caught.value.answers == tuple(None if n == 3 else True for n in range(COUNT))
    assert again == [True] * COUNT
    for claim in claims:
        assert EventKind.LATE_WRITE_REFUSED not in await kinds(store, claim.id)


async def test_one_lost_run_that_cannot_be_closed_keeps_no_other_open(
    store: KeyValueStore, engine: FaultyEngine
) -> None:
    claims = await _claims(store, 4)
    changes = [decide(claim, Lost(Loss.OWNER_DEAD), new_id=new_id) for claim in claims]
    engine.choose = those_of([claims[1].id], Fault.THROTTLED)

    with pytest.raises(StoreBusy) as caught:
        await store.apply(changes)

    assert caught.value.answers == (True, None, True, True)


async def test_later_change_of_a_job_waits_for_the_one_before(
    store: KeyValueStore, engine: FaultyEngine
) -> None:
    [claim] = await _claims(store, 1)
    released = decide(claim, Lost(Loss.OWNER_DEAD), new_id=new_id)
    engine.choose = every(1, Fault.THROTTLED)

    with pytest.raises(StoreBusy) as caught:
        await store.apply([released, succeed(claim.id, claim.token, "1")])

    assert caught.value.answers == (None, None)
    assert engine.failed == {Fault.THROTTLED: 1}


@pytest.mark.parametrize("fault", NOT_WRITTEN_OR_LOST)
async def test_add_tells_which_jobs_are_stored_and_is_safe_to_repeat(
    store: KeyValueStore, engine: FaultyEngine, fault: Fault
) -> None:
    jobs = [make_job() for _ in range(COUNT)]
    engine.choose = those_of([jobs[5].id], fault)

    with pytest.raises(OperatorError) as caught:
        await store.add(jobs)
    engine.choose = fine
    told = [added.id for added in caught.value.answers if added is not None and added.created]
    stored = {job.id for job in await store.get([job.id for job in jobs]) if job}
    again = await store.add(jobs)

    assert set(told) == stored - ({jobs[5].id, jobs[4].id} if fault is Fault.TIMED_OUT else set())
    assert [added.id for added in again] == [job.id for job in jobs]
    assert len(await take_many(store)) == COUNT


async def test_jobs_behind_one_that_failed_wait_where_order_matters(
    store: KeyValueStore, engine: FaultyEngine
) -> None:
    jobs = [make_job(key=DedupeKey(key="one", bucket="")) for _ in range(3)]
    engine.choose = those_of([jobs[0].id], Fault.THROTTLED)

    with pytest.raises(StoreBusy) as caught:
        await store.add(jobs)
    engine.choose = fine

    assert caught.value.answers == (None, None, None)
    assert [each.created for each in await store.add(jobs)] == [True, False, False]


async def test_promotion_goes_on_with_the_rest_before_it_fails(
    store: KeyValueStore, engine: FaultyEngine, clock: FakeClock
) -> None:
    ids = [await put(store, delay=HOUR) for _ in range(COUNT)]
    clock.advance(HOUR)
    engine.choose = those_of([ids[0]], Fault.SERVER_ERROR)

    with pytest.raises(StoreUnavailable):
        await store.promote_due(limit=100)

    jobs = await store.get(ids)
    assert [job.state for job in jobs if job] == [State.SCHEDULED] + [State.QUEUED] * (COUNT - 1)


async def test_claim_takes_what_is_ready_though_a_job_of_another_queue_cannot_be_promoted(
    store: KeyValueStore, engine: FaultyEngine, clock: FakeClock
) -> None:
    stuck = await put(store, queue="other", delay=HOUR)
    ids = await _put_many(store, 2)
    clock.advance(HOUR)
    engine.choose = those_of([stuck], Fault.SERVER_ERROR)

    claims = await take_many(store)

    assert [claim.id for claim in claims] == ids
    with pytest.raises(StoreUnavailable):
        await take_many(store)


@pytest.mark.parametrize("fault", NOT_WRITTEN_OR_LOST)
async def test_fire_goes_on_with_other_schedules_and_its_repetition_fires_no_slot_twice(
    store: KeyValueStore, engine: FaultyEngine, fault: Fault
) -> None:
    schedules = [await put_schedule(store, START, name=f"s{n}") for n in range(4)]
    firings = [make_firing(schedule) for schedule in schedules]
    job = firings[1].job
    assert job is not None
    engine.choose = those_of([job.id], fault)

    with pytest.raises(OperatorError) as caught:
        await store.fire(firings)
    engine.choose = fine
    again = await store.fire(firings)

    written = FireResult.WRITTEN
    assert caught.value.answers == (written, None, written, written)
    assert [answer is written for answer in again] == [False, fault is not Fault.TIMED_OUT] + [
        False
    ] * 2
    assert len(await take_many(store)) == len(firings)


async def test_renewal_tells_the_other_leases(store: KeyValueStore, engine: FaultyEngine) -> None:
    claims = await _claims(store)
    engine.choose = those_of([claims[0].id], Fault.THROTTLED)

    with pytest.raises(StoreBusy) as caught:
        await store.renew(
            [Lease(claim.id, claim.token) for claim in claims], span=timedelta(minutes=1)
        )

    told = caught.value.answers
    assert told[0] is None  # and those of its transaction
    assert (len(told), told[-1].held) == (COUNT, True)


async def test_write_that_is_decided_is_answered_though_its_rest_fails(
    store: KeyValueStore, engine: FaultyEngine
) -> None:
    """Of a write larger than a transaction the first one decides; a read completes the rest."""
    claim = await started(store, delivery=Delivery.LINKED, active_key="one")
    engine.choose = _completion

    assert await settle(store, claim, FAILED)
    engine.choose = fine

    assert engine.failed == {Fault.SERVER_ERROR: 1}
    assert len(await store.chain(claim.id)) == 2


def _completion(writes: Sequence[Write]) -> Fault | None:
    parts = {write.key.part for write in writes}
    is_completion = key_layout.PENDING in parts and key_layout.JOB not in parts
    return Fault.SERVER_ERROR if is_completion else None

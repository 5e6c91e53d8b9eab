"""Reads for people: why a job waits, and what the store holds."""

from typing import Any

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, Edited, Failed, Moved
from outlast.core.explain import MOST_AHEAD, Explanation, GateCode, explain
from outlast.core.group import GroupMode
from outlast.core.ids import JobId
from outlast.core.job import Slot
from outlast.core.position import Anchor, JobEdit, MoveTo
from outlast.core.reservation import NewReservation, ReservationId
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    SECOND,
    SUCCEEDED,
    ended,
    group_of,
    job_of,
    make_job,
    make_worker,
    new_id,
    put,
    put_group,
    settle,
    started,
    take,
    take_many,
)

DEAD = Failed("it broke", permanent=True)


async def told(store: Store, job_id: JobId) -> Explanation:
    situation = await store.wait_facts(job_id)
    assert situation is not None
    return explain(situation)


async def stop_of(store: Store, job_id: JobId) -> GateCode | None:
    stop = (await told(store, job_id)).stop
    return None if stop is None else stop.code


async def working(store: Store, **over: Any) -> None:
    """A live worker with room."""
    worker = make_worker("idle-1", **over)
    await store.register_worker(worker)
    await store.heartbeat(worker.holder, span=HOUR)


async def test_situation_of_an_unknown_job_is_none(store: Store) -> None:
    assert await store.wait_facts(new_id()) is None


async def test_runnable_job_is_what_the_next_claim_takes(store: Store) -> None:
    await working(store)
    behind, first = await put(store), await put(store, priority=5)

    assert await stop_of(store, first) is None
    assert await stop_of(store, behind) is GateCode.ORDER
    assert (await take(store)).id == first
    assert await stop_of(store, behind) is None


async def test_explanation_names_a_worker_that_is_stopping(store: Store) -> None:
    await working(store)
    job_id = await put(store)
    await store.heartbeat(make_worker("idle-1").holder, span=HOUR, is_stopping=True)

    stop = (await told(store, job_id)).stop

    assert stop is not None
    assert (stop.code, stop.holder) == (GateCode.WORKER, "idle-1")
    assert "stopping" in stop.text


async def test_explanation_counts_the_jobs_ahead_exactly(store: Store) -> None:
    ids = [await put(store) for _ in range(4)]
    other = await put(store, queue="lane")

    situations = [await store.wait_facts(job_id) for job_id in [*ids, other]]

    assert [each and each.ahead for each in situations] == [0, 1, 2, 3, 0]
    assert [each and each.next_one for each in situations] == [None, *[ids[0]] * 3, None]


async def test_explanation_counts_no_further_than_it_says(store: Store) -> None:
    await store.add([make_job() for _ in range(MOST_AHEAD + 10)])
    last = await put(store)

    situation = await store.wait_facts(last)

    assert situation is not None
    assert situation.ahead == MOST_AHEAD + 1
    assert "1,000+" in "\n".join(explain(situation).lines())


async def test_each_gate_is_named_and_clearing_it_changes_the_answer(
    store: Store, clock: FakeClock
) -> None:
    job_id = await put(store, delay=HOUR)
    await store.pause("default", reason="deploy", span=None)

    assert await stop_of(store, job_id) is GateCode.DUE
    clock.advance(HOUR)
    assert await stop_of(store, job_id) is GateCode.PAUSED
    await store.resume("default")
    assert await stop_of(store, job_id) is GateCode.WORKER
    await working(store, types=("other",))
    assert await stop_of(store, job_id) is GateCode.TYPE
    await working(store)
    assert await stop_of(store, job_id) is None
    assert (await take(store)).id == job_id
    assert await stop_of(store, job_id) is GateCode.RUNNING


async def test_pause_that_has_run_out_stops_nobody(store: Store, clock: FakeClock) -> None:
    await working(store)
    job_id = await put(store)
    await store.pause("default", reason=None, span=SECOND)

    assert await stop_of(store, job_id) is GateCode.PAUSED
    clock.advance(SECOND)
    assert await stop_of(store, job_id) is None


async def test_full_queue_names_who_fills_it(store: Store) -> None:
    await working(store)
    await store.set_queue(Queue(name="default", concurrency=1))
    running = await started(store)
    job_id = await put(store)

    stop = (await told(store, job_id)).stop

    assert stop is not None
    assert (stop.code, stop.holder) == (GateCode.CONCURRENCY, running.id)
    await settle(store, running, SUCCEEDED)
    assert await stop_of(store, job_id) is None


async def test_reserved_queue_names_the_direct_job(store: Store) -> None:
    await working(store)
    job_id, direct = await put(store), make_job()
    new = NewReservation(id=ReservationId(new_id()), caller="caller.1", request="r", span=HOUR)
    await store.reserve(new, direct)

    stop = (await told(store, job_id)).stop

    assert stop is not None
    assert (stop.code, stop.holder) == (GateCode.RESERVATION, direct.id)
    assert await stop_of(store, direct.id) is None
    assert (await take(store)).id == direct.id


async def test_once_job_names_the_one_it_would_overlap(store: Store, clock: FakeClock) -> None:
    await working(store)
    once = {"delivery": Delivery.ONCE, "name": "brief"}
    running = await started(store, **once, slot=Slot(series="brief", at=clock.now()))
    job_id = await put(store, **once, slot=Slot(series="brief", at=clock.now() - HOUR))

    stop = (await told(store, job_id)).stop

    assert stop is not None
    assert (stop.code, stop.holder) == (GateCode.OVERLAP, running.id)


async def test_blocked_member_names_the_one_before_it(store: Store) -> None:
    await working(store)
    group_id, (first, second) = await put_group(
        store, make_job(), make_job(), mode=GroupMode.SEQUENTIAL
    )

    stop = (await told(store, second)).stop

    assert stop is not None
    assert (stop.code, stop.holder) == (GateCode.BLOCKED, first)
    await settle(store, await take(store), SUCCEEDED)
    assert await stop_of(store, second) is None
    assert (await group_of(store, group_id)).done == 1


async def test_blocked_member_names_the_retry_of_the_one_before_it(store: Store) -> None:
    _, (_, second) = await put_group(
        store,
        *[make_job(delivery=Delivery.LINKED, max_attempts=3) for _ in range(2)],
        mode=GroupMode.SEQUENTIAL,
    )
    failed = await take(store)
    await settle(store, failed, Failed("it broke"))
    [_, retry] = await store.chain(failed.id)

    stop = (await told(store, second)).stop

    assert stop is not None
    assert (stop.code, stop.holder) == (GateCode.BLOCKED, retry.id)
    assert "has not ended" in stop.text


async def test_job_past_its_deadline_says_so(store: Store, clock: FakeClock) -> None:
    await working(store)
    job_id = await put(store, start_within=SECOND)
    clock.advance(2 * SECOND)

    assert await stop_of(store, job_id) is GateCode.DEADLINE


async def test_busy_workers_are_told(store: Store) -> None:
    await working(store, concurrency=1)
    await put(store)
    await take_many(store, holder="idle-1", limit=1)
    job_id = await put(store)

    assert await stop_of(store, job_id) is GateCode.SLOTS


async def test_lapsed_lease_is_told(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    before = (await told(store, claim.id)).stop
    clock.advance(LEASE)
    after = (await told(store, claim.id)).stop

    assert before is not None
    assert after is not None
    assert "expired" not in before.text
    assert "expired" in after.text


@pytest.mark.parametrize("event", [SUCCEEDED, DEAD])
async def test_ended_job_says_how(store: Store, event: Any) -> None:
    job_id = await ended(store, event)

    assert await stop_of(store, job_id) is GateCode.ENDED


async def test_order_gate_follows_moves_and_edits(store: Store) -> None:
    await working(store)
    first, second = await put(store), await put(store)

    await settle(store, await job_of(store, second), Moved(MoveTo(Anchor.FRONT)))
    assert [await stop_of(store, first), await stop_of(store, second)] == [GateCode.ORDER, None]
    await settle(store, await job_of(store, first), Edited(JobEdit(priority=9)))
    assert [await stop_of(store, first), await stop_of(store, second)] == [None, GateCode.ORDER]


async def test_order_passes_over_what_no_worker_there_would_take(
    store: Store, clock: FakeClock
) -> None:
    await working(store)
    await put(store, type="unheard", priority=9)
    await put(store, start_within=SECOND, priority=8)
    clock.advance(2 * SECOND)
    job_id = await put(store)

    assert await stop_of(store, job_id) is None
    assert (await take(store)).id == job_id


async def test_once_job_that_is_due_stands_before_those_of_its_name(
    store: Store, clock: FakeClock
) -> None:
    await working(store)
    slot = [Slot(series="brief", at=clock.now() - n * HOUR) for n in range(2)]
    once = {"delivery": Delivery.ONCE, "name": "brief"}
    first = await put(store, **once, slot=slot[0], delay=SECOND, priority=5)
    second = await put(store, **once, slot=slot[1])
    clock.advance(SECOND)

    stop = (await told(store, second)).stop

    assert stop is not None
    assert (stop.code, stop.holder) == (GateCode.ORDER, first)
    assert (await take(store)).id == first


async def test_direct_job_is_next_whatever_stands_before_it(store: Store) -> None:
    await working(store)
    await put(store, priority=9)
    direct = make_job()
    new = NewReservation(id=ReservationId(new_id()), caller="caller.1", request="r", span=HOUR)
    await store.reserve(new, direct)

    assert await stop_of(store, direct.id) is None
    assert (await take(store)).id == direct.id


async def test_what_one_worker_has_at_hand_keeps_no_other_busy(store: Store) -> None:
    hoarder = make_worker("hoarder-1", concurrency=1)
    await store.register_worker(hoarder)
    await store.heartbeat(hoarder.holder, span=HOUR)
    await store.add([make_job() for _ in range(9)])
    await take_many(store, holder="hoarder-1", limit=9)
    job_id = await put(store)

    assert await stop_of(store, job_id) is GateCode.SLOTS
    await working(store, concurrency=2)
    assert await stop_of(store, job_id) is None


async def test_overview_counts_what_waits_runs_and_ended(store: Store, clock: FakeClock) -> None:
    await ended(store)
    clock.advance(2 * HOUR)
    await ended(store, DEAD, queue="lane")
    await started(store)
    await put(store)
    await put(store, delay=HOUR)

    view = await store.overview(span=HOUR)

    assert view.now == clock.now()
    assert {(row.state, row.jobs, row.due) for row in view.backlog} == {
        (State.QUEUED, 1, 1),
        (State.SCHEDULED, 1, 0),
    }
    assert [(row.queue, row.jobs, row.lapsed) for row in view.running] == [("default", 1, 0)]
    assert dict(view.ended) == {("lane", State.DEAD_LETTER): 1}
    assert view.queues == ["default", "lane"]


async def test_overview_tells_lapsed_leases(store: Store, clock: FakeClock) -> None:
    await started(store)
    clock.advance(LEASE)

    (row,) = (await store.overview(span=HOUR)).running

    assert (row.jobs, row.lapsed) == (1, 1)


async def test_find_by_state_key_and_beginning_of_the_id(store: Store) -> None:
    dead = await ended(store, DEAD)
    waiting = await put(store, queue="lane", active_key="one")
    running = await started(store, active_key="two")
    await ended(store)
    cancelled = await put(store)
    await settle(store, await job_of(store, cancelled), CancelRequested())

    async def found(**what: Any) -> list[JobId]:
        return [job.id for job in await store.find(Filter(**what), limit=10)]

    assert await found(states=frozenset({State.DEAD_LETTER})) == [dead]
    assert await found(states=frozenset({State.RUNNING, State.CANCELLED})) == [
        cancelled,
        running.id,
    ]
    assert await found(states=frozenset({State.QUEUED}), queue="lane") == [waiting]
    assert await found(states=frozenset({State.QUEUED}), type="other") == []
    assert await found(key="one") == [waiting]
    assert await found(key="two", states=frozenset({State.QUEUED})) == []
    assert await found(key="nobody") == []
    assert await found(prefix=dead) == [dead]
    assert dead in await found(prefix=dead[:4])
    assert await found(prefix="zzz") == []

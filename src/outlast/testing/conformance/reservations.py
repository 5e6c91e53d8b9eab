"""A queue has one reservation at a time; nothing is claimed before its job."""

from datetime import timedelta
from typing import Any

import pytest

from outlast.core.event import CancelRequested, Failed
from outlast.core.job import DedupeKey, Slot
from outlast.core.ordering import Ordering
from outlast.core.reservation import NewReservation, Reservation, ReservationId, ReservationStatus
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.contract.reservations import Reserved
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    MANY,
    SECOND,
    SUCCEEDED,
    claim_order,
    ended,
    job_of,
    make_job,
    new_id,
    put,
    settle,
    started,
    take,
    take_many,
)

ONE = Queue(name="default", ordering=Ordering.POSITION, concurrency=1)
SPAN = timedelta(minutes=5)


def make_reservation(**over: Any) -> NewReservation:
    """Five minutes, for a request of some caller."""
    plain = {"id": ReservationId(new_id()), "caller": "caller.1", "request": "req-7", "span": SPAN}
    return NewReservation(**{**plain, **over})


async def ask(store: Store, **over: Any) -> Reserved:
    """Try to hold the queue for a new job."""
    return await store.reserve(make_reservation(), make_job(**{"max_attempts": 1, **over}))


async def reserve(store: Store, **over: Any) -> Reservation:
    """Reserve the queue, which has no reservation."""
    reserved = await ask(store, **over)
    assert reserved.created, reserved
    assert reserved.reservation is not None
    return reserved.reservation


async def now(store: Store, held: Reservation) -> Reservation:
    found = await store.reservation(held.id)
    assert found is not None
    return found


async def test_reservation_comes_with_its_job(store: Store, clock: FakeClock) -> None:
    new, job = make_reservation(), make_job(queue="lane")

    reserved = await store.reserve(new, job)

    held = Reservation(
        id=new.id,
        queue="lane",
        job_id=job.id,
        caller="caller.1",
        request="req-7",
        status=ReservationStatus.ACTIVE,
        reason=None,
        reserved_at=clock.now(),
        expires_at=clock.now() + SPAN,
        ended_at=None,
    )
    assert reserved == Reserved(created=True, reservation=held)
    assert await store.reservation(new.id) == held
    assert await store.reservations(active_only=True, limit=MANY) == [held]
    assert (await job_of(store, job.id)).state is State.QUEUED
    assert held.reserved_by == "caller.1 for req-7"


async def test_reservation_that_is_not_there_is_none(store: Store) -> None:
    assert await store.reservation(ReservationId(new_id())) is None
    assert await store.reservations(limit=MANY) == []


async def test_queue_that_is_held_answers_its_holder_and_writes_nothing(store: Store) -> None:
    held = await reserve(store)

    assert await ask(store) == Reserved(created=False, reservation=held)
    assert [job.id for job in await store.find(Filter(), limit=MANY)] == [held.job_id]


async def test_other_queues_can_be_held_meanwhile(store: Store) -> None:
    first, second = await reserve(store), await reserve(store, queue="lane")

    assert await store.reservations(active_only=True, limit=MANY) == [second, first]
    assert await store.reservations(limit=1) == [second]


async def test_repeated_question_finds_its_own_reservation(store: Store) -> None:
    new, job = make_reservation(), make_job()
    first = await store.reserve(new, job)

    again = await store.reserve(new, job)
    await take(store)
    later = await store.reserve(new, job)

    assert again == Reserved(created=False, reservation=first.reservation)
    assert later == Reserved(created=False, existing=job.id)


async def test_job_that_cannot_be_stored_holds_no_queue(store: Store) -> None:
    taken = await put(store, key=DedupeKey(key="k"))

    refused, known = (
        await ask(store, params="x" * 300_000),
        await ask(store, key=DedupeKey(key="k")),
    )

    assert (refused.created, refused.reservation, bool(refused.refused)) == (False, None, True)
    assert known == Reserved(created=False, existing=taken)
    assert await store.reservations(limit=MANY) == []


async def test_job_with_every_key_can_hold_a_queue(store: Store, clock: FakeClock) -> None:
    dead = await ended(store, Failed("it broke"), max_attempts=1, queue="lane")
    keys: dict[str, Any] = {
        "key": DedupeKey(key="k"),
        "active_key": "a",
        "slot": Slot(series="nightly", at=clock.now()),
        "retry_of": dead,
    }

    held = await reserve(store, **keys)

    assert await store.reservations(active_only=True, limit=MANY) == [held]
    assert [claim.id for claim in await take_many(store)] == [held.job_id]


async def test_held_queue_gives_nothing_but_its_job(store: Store) -> None:
    await store.set_queue(ONE)
    others = [await put(store, priority=9), await put(store)]
    held = await reserve(store)

    taken = await claim_order(store)
    while_it_runs = await take_many(store)

    assert (taken, while_it_runs) == ([held.job_id], [])
    assert [job.id for job in await store.peek("default", limit=MANY)] == others


async def test_held_queue_gives_its_job_only_to_who_knows_its_type(store: Store) -> None:
    await put(store)
    held = await reserve(store, type="story")

    assert await take_many(store) == []
    assert await claim_order(store, types=["story"]) == [held.job_id]


async def test_direct_job_is_not_taken_in_advance(store: Store) -> None:
    held = await reserve(store)

    assert await take_many(store, limit=0, prefetch=5) == []
    assert await claim_order(store, limit=5, prefetch=5) == [held.job_id]


async def test_direct_job_waits_for_the_one_that_runs(store: Store) -> None:
    await store.set_queue(ONE)
    running = await started(store)
    held = await reserve(store)

    while_it_runs = await take_many(store)
    await settle(store, running, SUCCEEDED)

    assert while_it_runs == []
    assert await claim_order(store) == [held.job_id]


async def test_paused_queue_gives_no_direct_job_either(store: Store) -> None:
    await reserve(store)
    await store.pause("default", reason=None, span=None)

    assert await take_many(store) == []


@pytest.mark.parametrize("limit", [None, 2])
async def test_claim_of_its_job_releases_a_queue_that_runs_several(
    store: Store, clock: FakeClock, limit: int | None
) -> None:
    await store.set_queue(Queue(name="default", concurrency=limit))
    other, held = await put(store), await reserve(store)
    clock.advance(SECOND)

    first = await claim_order(store)

    assert first == [held.job_id]
    after = await now(store, held)
    assert (after.status, after.reason) == (ReservationStatus.RELEASED, None)
    assert after.ended_at == clock.now()
    assert await claim_order(store) == [other]


async def test_direct_job_goes_before_all_of_its_priority_and_moves_nobody(store: Store) -> None:
    await store.set_queue(ONE)
    first, second = await put(store), await put(store)
    before = await store.peek("default", limit=MANY)

    held = await reserve(store)

    direct = await job_of(store, held.job_id)
    assert (direct.state, direct.position) == (State.QUEUED, -100)
    assert await store.peek("default", limit=MANY) == before
    assert await store.peek("default", limit=1) == before[:1]
    assert [(job.id, job.position) for job in before] == [(first, 100), (second, 200)]


async def test_queue_after_release_is_exactly_the_queue_before(store: Store) -> None:
    await store.set_queue(ONE)
    for priority in (0, 5, 0):
        await put(store, priority=priority)
    before = await store.peek("default", limit=MANY)

    for event in (SUCCEEDED, Failed("broke")):
        await reserve(store)
        await settle(store, await take(store), event)
    held = await reserve(store)
    await settle(store, await job_of(store, held.job_id), CancelRequested())

    assert await store.peek("default", limit=MANY) == before
    assert (await take(store)).id == before[0].id


async def test_job_added_while_only_a_direct_one_waits_gets_the_first_position(
    store: Store,
) -> None:
    await store.set_queue(ONE)
    await reserve(store)

    jobs = [await put(store), await put(store)]

    assert [(await job_of(store, job)).position for job in jobs] == [100, 200]

"""A queue has one reservation at a time; nothing is claimed before its job; it expires."""

from datetime import timedelta
from typing import Any

import pytest

from outlast.core.decide import decide
from outlast.core.event import (
    Abandoned,
    Abandonment,
    CancelRequested,
    Event,
    EventKind,
    Failed,
    Lost,
    Released,
    Skipped,
    Stopped,
    Succeeded,
)
from outlast.core.job import DedupeKey
from outlast.core.ordering import Ordering
from outlast.core.reservation import (
    NewReservation,
    Reservation,
    ReservationId,
    ReservationStatus,
    status_after,
)
from outlast.core.state import Loss, State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.contract.reservations import Reserved
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    MANY,
    SECOND,
    SUCCEEDED,
    TICK,
    claim_order,
    job_of,
    kinds,
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
SILENT = Abandoned(Abandonment.CALLER_SILENT)
DEAD = Abandoned(Abandonment.OWNER_DEAD)


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

    direct, *others = await store.peek("default", limit=MANY)
    assert (direct.id, direct.position) == (held.job_id, -100)
    assert others == before
    assert [job.position for job in others] == [100, 200]
    assert [job.id for job in others] == [first, second]


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


@pytest.mark.parametrize(
    "event", [SUCCEEDED, Succeeded(), Failed("broke"), Skipped("empty"), Stopped("told")]
)
async def test_end_of_its_job_releases_the_queue(
    store: Store, clock: FakeClock, event: Event
) -> None:
    await store.set_queue(ONE)
    held, other = await reserve(store), await put(store)
    claim = await take(store)
    clock.advance(SECOND)

    assert (await now(store, held)).is_active
    assert await settle(store, claim, event)

    after = await now(store, held)
    assert (after.status, after.reason) == (ReservationStatus.RELEASED, None)
    assert after.ended_at == clock.now()
    assert await claim_order(store) == [other]


@pytest.mark.parametrize("loss", [Loss.OWNER_DEAD, Loss.STARTUP_RECOVERY, Loss.SHUTDOWN])
async def test_loss_of_its_run_lets_it_expire(store: Store, loss: Loss) -> None:
    await store.set_queue(ONE)
    held, other = await reserve(store), await put(store)

    await settle(store, await take(store), Lost(loss))

    after = await now(store, held)
    assert (after.status, after.reason) == (ReservationStatus.EXPIRED, loss)
    assert (await job_of(store, held.job_id)).state is State.DEAD_LETTER
    assert await claim_order(store) == [other]


async def test_refused_end_leaves_the_reservation_alone(store: Store) -> None:
    await store.set_queue(ONE)
    held = await reserve(store, max_attempts=2)
    stale = await take(store)
    await settle(store, stale, Released("drain"))
    await take(store)

    assert not await settle(store, stale, SUCCEEDED)

    assert (await now(store, held)).is_active


async def test_hand_back_keeps_the_queue_held(store: Store) -> None:
    await store.set_queue(ONE)
    held = await reserve(store)
    await put(store)

    await settle(store, await take(store), Released("drain"))

    assert (await now(store, held)).is_active
    assert await claim_order(store) == [held.job_id]


async def test_cancelling_its_job_releases_the_queue(store: Store) -> None:
    held, other = await reserve(store), await put(store)

    await settle(store, await job_of(store, held.job_id), CancelRequested("no"))

    assert (await now(store, held)).status is ReservationStatus.RELEASED
    assert await claim_order(store) == [other]


async def test_kept_reservation_lasts_from_now(store: Store, clock: FakeClock) -> None:
    held = await reserve(store)
    clock.advance(SPAN - TICK)
    in_time = await store.expired_reservations(limit=MANY)
    clock.advance(TICK)
    lapsed = await store.expired_reservations(limit=MANY)

    assert await store.extend_reservation(held.id, span=HOUR)

    assert (in_time, lapsed) == ([], [held])
    assert await store.expired_reservations(limit=MANY) == []
    assert (await now(store, held)).expires_at == clock.now() + HOUR


async def test_what_has_ended_cannot_be_kept(store: Store) -> None:
    held = await reserve(store)
    await take(store)

    assert not await store.extend_reservation(held.id, span=SPAN)
    assert not await store.extend_reservation(ReservationId(new_id()), span=SPAN)
    assert (await now(store, held)).expires_at == held.expires_at


async def test_renewing_the_lease_of_its_job_renews_it(store: Store, clock: FakeClock) -> None:
    await store.set_queue(ONE)
    held = await reserve(store)
    claim = await take(store)
    clock.advance(SPAN)

    await store.renew([claim.lease], span=LEASE)

    assert (await now(store, held)).expires_at == clock.now() + SPAN
    assert await store.expired_reservations(limit=MANY) == []


async def test_lease_of_another_job_renews_nothing(store: Store, clock: FakeClock) -> None:
    other = await started(store, queue="lane")
    held = await reserve(store)
    clock.advance(SECOND)

    await store.renew([other.lease], span=LEASE)

    assert await now(store, held) == held


async def test_set_wall_clock_neither_ends_nor_prolongs_it(store: Store, clock: FakeClock) -> None:
    held = await reserve(store)

    clock.set_wall(clock.now() + 10 * HOUR)
    after_setting = await store.expired_reservations(limit=MANY)
    clock.set_back(20 * HOUR)
    clock.advance(SPAN)

    assert after_setting == []
    assert await store.expired_reservations(limit=MANY) == [held]


async def test_lapsed_reservation_is_obeyed_until_somebody_ends_it(
    store: Store, clock: FakeClock
) -> None:
    held, other = await reserve(store, type="story"), await put(store)
    clock.advance(SPAN)
    still = await take_many(store)

    assert await settle(store, await job_of(store, held.job_id), SILENT)

    job, after = await job_of(store, held.job_id), await now(store, held)
    assert still == []
    assert (job.state, job.reason) == (State.CANCELLED, "caller_silent")
    assert (after.status, after.reason) == (ReservationStatus.EXPIRED, "caller_silent")
    assert await kinds(store, held.job_id) == [EventKind.ABANDONED]
    assert await claim_order(store) == [other]


async def test_caller_that_was_heard_again_is_not_silent(store: Store, clock: FakeClock) -> None:
    held = await reserve(store)
    clock.advance(SPAN)
    change = decide(await job_of(store, held.job_id), SILENT, new_id=new_id)
    await store.extend_reservation(held.id, span=TICK)

    assert await store.apply([change]) == [False]

    assert (await job_of(store, held.job_id)).state is State.QUEUED
    assert (await now(store, held)).is_active
    assert await kinds(store, held.job_id) == []


async def test_job_without_a_reservation_is_nobody_silent_s(store: Store) -> None:
    job_id = await put(store)

    assert not await settle(store, await job_of(store, job_id), SILENT)


async def test_dead_caller_needs_no_lapse(store: Store) -> None:
    held = await reserve(store)

    assert await settle(store, await job_of(store, held.job_id), DEAD)

    after = await now(store, held)
    assert (after.status, after.reason) == (ReservationStatus.EXPIRED, "owner_dead")


async def test_job_taken_meanwhile_is_not_abandoned(store: Store, clock: FakeClock) -> None:
    held = await reserve(store)
    clock.advance(SPAN)
    job = await job_of(store, held.job_id)
    changes = [decide(job, event, new_id=new_id) for event in (SILENT, DEAD)]
    await take(store)

    assert await store.apply(changes) == [False, False]

    assert (await job_of(store, held.job_id)).state is State.RUNNING


async def test_after_its_end_the_queue_can_be_held_again(store: Store) -> None:
    first = await reserve(store)
    await settle(store, await job_of(store, first.job_id), CancelRequested())

    second = await reserve(store)

    assert first.id != second.id
    assert [each.id for each in await store.reservations(limit=MANY)] == [second.id, first.id]


async def test_lapsed_one_whose_job_was_handed_back_is_freed_and_the_job_stays(
    store: Store, clock: FakeClock
) -> None:
    await store.set_queue(ONE)
    held = await reserve(store, max_attempts=3)
    await settle(store, await take(store), Failed("broke", HOUR))
    other = await put(store)
    clock.advance(SPAN - TICK)
    early = await store.release_stale_reservations(limit=MANY)
    clock.advance(TICK)

    [freed] = await store.release_stale_reservations(limit=MANY)

    assert early == []
    assert (freed.id, freed.status, freed.reason) == (held.id, "expired", "handed_back")
    assert freed == await now(store, held)
    assert (await job_of(store, held.job_id)).state is State.RETRY_WAIT
    assert (await take(store)).id == other


async def test_repair_finds_nothing_in_a_sound_store(store: Store) -> None:
    await store.set_queue(ONE)
    waits, runs = await reserve(store, queue="lane"), await reserve(store)
    await take(store)

    assert await store.release_stale_reservations(limit=MANY) == []
    assert (await now(store, waits)).is_active
    assert (await now(store, runs)).is_active


async def test_reservation_goes_when_its_job_is_pruned(store: Store, clock: FakeClock) -> None:
    held = await reserve(store)
    await settle(store, await take(store), SUCCEEDED)
    clock.advance(HOUR)

    await store.prune(older_than=SECOND, limit=MANY)

    assert await store.reservation(held.id) is None
    assert await store.reservations(limit=MANY) == []


async def test_reservation_expires_with_a_loss_and_is_released_by_every_other_end() -> None:
    """What a store writes with the end of a job, as the core has it."""
    for event, status in (
        (SUCCEEDED, "released"),
        (Failed("broke", permanent=True), "released"),
        (Lost(Loss.TIMEOUT), "expired"),
    ):
        move = decide(_Runs(), event, new_id=new_id).move
        assert status_after(move.run, move.kind) == status
    assert status_after(None, EventKind.ABANDONED) == "expired"
    assert status_after(None, EventKind.CANCELLED) == "released"


class _Runs:
    """A running job whose last attempt this is."""

    id, state, token, failures, losses, max_attempts = new_id(), State.RUNNING, 1, 0, 0, 1
    delivery = make_job().delivery

"""A reservation is extended, renewed with the lease of its job, or expires."""

from outlast.core.decide import decide
from outlast.core.event import Abandoned, Abandonment, EventKind, Failed
from outlast.core.reservation import ReservationId, ReservationStatus
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    MANY,
    SECOND,
    TICK,
    claim_order,
    job_of,
    kinds,
    new_id,
    put,
    settle,
    started,
    take,
    take_many,
)
from outlast.testing.conformance.reservations import ONE, SPAN, now, reserve

SILENT = Abandoned(Abandonment.CALLER_SILENT)
DEAD = Abandoned(Abandonment.OWNER_DEAD)


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

"""The end of its job ends a reservation; the queue can then be reserved again."""

import pytest

from outlast.core.decide import decide
from outlast.core.event import (
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
from outlast.core.reservation import ReservationStatus, status_after
from outlast.core.state import Loss, State
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SECOND,
    SUCCEEDED,
    claim_order,
    job_of,
    make_job,
    new_id,
    put,
    settle,
    take,
)
from outlast.testing.conformance.reservations import ONE, now, reserve


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


async def test_after_its_end_the_queue_can_be_held_again(store: Store) -> None:
    first = await reserve(store)
    await settle(store, await job_of(store, first.job_id), CancelRequested())

    second = await reserve(store)

    assert first.id != second.id
    assert [each.id for each in await store.reservations(limit=MANY)] == [second.id, first.id]


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

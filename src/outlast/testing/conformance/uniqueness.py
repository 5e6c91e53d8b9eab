"""Slots, dedupe keys and active keys have one job each, and the loser learns its id."""

from datetime import timezone
from typing import Any

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import (
    CancelRequested,
    Event,
    Failed,
    GivenUp,
    Released,
    Skipped,
    Stopped,
)
from outlast.core.job import DedupeKey, Job, Slot
from outlast.core.lineage import retry_copy
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Added
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LOST,
    SECOND,
    SUCCEEDED,
    ended,
    job_of,
    make_job,
    new_id,
    put,
    settle,
    started,
    take,
)

K = DedupeKey(key="brief")


async def _loser(store: Store, **over: object) -> Added:
    """What a job that meets a taken key is told; nothing of it is stored."""
    job = make_job(**over)
    [added] = await store.add([job])
    assert await store.get([job.id]) == [None]
    return added


async def test_slot_is_claimed_once(store: Store, clock: FakeClock) -> None:
    slot = Slot(series="daily", at=clock.now())
    holder = await put(store, slot=slot)

    assert await _loser(store, slot=slot) == Added(holder, created=False)


async def test_slots_differ_by_series_and_by_moment(store: Store, clock: FakeClock) -> None:
    await put(store, slot=Slot(series="daily", at=clock.now()))

    assert await put(store, slot=Slot(series="hourly", at=clock.now()))
    assert await put(store, slot=Slot(series="daily", at=clock.now() + HOUR))


async def test_slot_stays_claimed_when_its_job_has_ended(store: Store, clock: FakeClock) -> None:
    slot = Slot(series="daily", at=clock.now())
    holder = await ended(store, Skipped(), slot=slot, delivery=Delivery.ONCE)

    assert await _loser(store, slot=slot) == Added(holder, created=False)


async def test_key_is_taken_for_ever(store: Store) -> None:
    holder = await ended(store, SUCCEEDED, key=K)

    assert await _loser(store, key=K) == Added(holder, created=False)


async def test_keys_differ_by_bucket(store: Store) -> None:
    plain = await put(store, key=K)
    monday = await put(store, key=DedupeKey(key="brief", bucket="monday"))

    assert (await _loser(store, key=K)).id == plain
    assert (await _loser(store, key=DedupeKey(key="brief", bucket="monday"))).id == monday


async def test_key_of_any_text_is_kept_exactly(store: Store) -> None:
    upper = await put(store, key=DedupeKey(key="Brief 東京 %_'\""))
    await put(store, key=DedupeKey(key="brief 東京 %_'\""))

    assert (await _loser(store, key=DedupeKey(key="Brief 東京 %_'\""))).id == upper


async def test_active_key_is_taken_while_its_job_lives(store: Store) -> None:
    claim = await started(store, active_key="sync")
    while_running = await _loser(store, active_key="sync")

    await settle(store, claim, Failed("it broke", delay=HOUR))

    assert while_running == Added(claim.id, created=False)
    assert (await _loser(store, active_key="sync")).id == claim.id


@pytest.mark.parametrize(
    "event",
    [SUCCEEDED, Skipped(), Failed("it broke", permanent=True)],
    ids=["succeeded", "skipped", "dead_letter"],
)
async def test_active_key_is_free_when_its_job_ends(store: Store, event: Skipped) -> None:
    await ended(store, event, active_key="sync")

    assert await put(store, active_key="sync")


async def test_active_key_is_free_when_its_job_is_cancelled_unrun(store: Store) -> None:
    waiting = await job_of(store, await put(store, active_key="sync"))

    await settle(store, waiting, CancelRequested())

    assert await put(store, active_key="sync")


async def test_active_key_stays_with_a_job_put_back(store: Store) -> None:
    claim = await started(store, active_key="sync")

    await settle(store, claim, Released("drain"))

    assert (await _loser(store, active_key="sync")).id == claim.id


async def test_old_job_s_end_leaves_the_new_holder_s_active_key_alone(store: Store) -> None:
    claim = await started(store, active_key="sync")
    await settle(store, claim, SUCCEEDED)
    holder = await put(store, active_key="sync")

    await settle(store, claim, SUCCEEDED)

    assert (await _loser(store, active_key="sync")).id == holder


async def test_three_scopes_do_not_meet(store: Store, clock: FakeClock) -> None:
    await put(store, key=DedupeKey(key="x"))

    assert await put(store, active_key="x")
    assert await put(store, slot=Slot(series="x", at=clock.now()))


async def test_slot_is_asked_before_key_and_key_before_active_key(
    store: Store, clock: FakeClock
) -> None:
    slot = Slot(series="daily", at=clock.now())
    by_slot = await put(store, slot=slot)
    by_key = await put(store, key=K)
    by_active = await put(store, active_key="sync")

    assert (await _loser(store, slot=slot, key=K, active_key="sync")).id == by_slot
    assert (await _loser(store, key=K, active_key="sync")).id == by_key
    assert (await _loser(store, active_key="sync")).id == by_active


async def test_loser_takes_none_of_its_other_keys(store: Store) -> None:
    await put(store, key=K)

    await _loser(store, key=K, active_key="sync")

    assert await put(store, active_key="sync")


async def test_of_two_in_one_call_the_first_wins(store: Store) -> None:
    winner, loser = make_job(key=K), make_job(key=K)

    added = await store.add([winner, loser])

    assert added == [Added(winner.id, created=True), Added(winner.id, created=False)]


async def test_repeating_an_enqueue_by_id_answers_that_id(store: Store, clock: FakeClock) -> None:
    slot = Slot(series="daily", at=clock.now())
    job = make_job(key=K, slot=slot, active_key="sync")

    added = await store.add([job, job])

    assert added == [Added(job.id, created=True), Added(job.id, created=False)]


async def test_successor_inherits_the_active_key(store: Store) -> None:
    claim = await started(store, delivery=Delivery.LINKED, active_key="sync")

    await settle(store, claim, FAILED)
    while_chained = await _loser(store, active_key="sync")
    await settle(store, await take(store), SUCCEEDED)

    assert while_chained == Added(claim.id, created=False), "the root of the chain is named"
    assert await put(store, active_key="sync")


@pytest.mark.parametrize(
    "event",
    [Failed("it broke", permanent=True), Skipped(), Stopped(), None],
    ids=["dead_letter", "skipped", "cancelled", "cancelled unrun"],
)
async def test_active_key_is_free_however_a_later_link_ends(
    store: Store, event: Event | None
) -> None:
    claim = await started(store, delivery=Delivery.LINKED, active_key="sync")
    await settle(store, claim, FAILED)

    if event is None:
        _, waiting = await store.chain(claim.id)
        await settle(store, waiting, CancelRequested())
    else:
        await settle(store, await take(store), event)

    assert await put(store, active_key="sync")


async def test_giving_up_a_link_leaves_its_successor_s_active_key_alone(store: Store) -> None:
    claim = await started(store, delivery=Delivery.LINKED, active_key="sync")
    await settle(store, claim, LOST)

    await settle(store, await job_of(store, claim.id), GivenUp("recovered"))

    assert (await _loser(store, active_key="sync")).id == claim.id


async def test_key_and_slot_stay_with_the_root_of_the_chain(store: Store, clock: FakeClock) -> None:
    slot = Slot(series="daily", at=clock.now())
    claim = await started(store, delivery=Delivery.LINKED, key=K, slot=slot)

    await settle(store, claim, FAILED)

    assert (await _loser(store, key=K)).id == claim.id
    assert (await _loser(store, slot=slot)).id == claim.id


async def test_keys_outlive_their_pruned_job(store: Store, clock: FakeClock) -> None:
    slot = Slot(series="daily", at=clock.now())
    job_id = await ended(store, SUCCEEDED, key=K, slot=slot)
    clock.advance(HOUR)
    await store.prune(older_than=SECOND, limit=10)

    assert await store.get([job_id]) == [None]
    assert (await _loser(store, key=K)).id == job_id
    assert (await _loser(store, slot=slot)).id == job_id


async def test_equal_moments_of_two_time_zones_are_one_slot(store: Store, clock: FakeClock) -> None:
    there = clock.now().astimezone(timezone(2 * HOUR))
    holder = await put(store, slot=Slot(series="daily", at=clock.now()))

    assert (await _loser(store, slot=Slot(series="daily", at=there))).id == holder
    assert (await job_of(store, holder)).state is State.QUEUED


async def _dead_letter(store: Store, **over: Any) -> Job:
    return await job_of(store, await ended(store, FAILED, max_attempts=1, **over))


@pytest.mark.parametrize("delivery", [Delivery.LEASE, Delivery.LINKED])
async def test_retry_holds_the_active_key_of_its_job(store: Store, delivery: Delivery) -> None:
    dead = await _dead_letter(store, delivery=delivery, active_key="sync")

    retry = retry_copy(dead, new_id())
    [added] = await store.add([retry])

    assert added.created
    assert (await job_of(store, retry.id)).active_key == "sync"
    assert (await _loser(store, active_key="sync")).id == dead.id, "the root of the chain holds it"
    await settle(store, await take(store), SUCCEEDED)
    assert await put(store, active_key="sync"), "it is free when the retry has ended"


async def test_retry_of_a_job_whose_active_key_is_taken_is_not_stored(store: Store) -> None:
    dead = await _dead_letter(store, active_key="sync")
    holder = await put(store, active_key="sync")

    retry = retry_copy(dead, new_id())
    [added] = await store.add([retry])

    assert added == Added(holder, created=False)
    assert await store.get([retry.id]) == [None]
    assert [job.id for job in await store.chain(dead.id)] == [dead.id]


async def test_jobs_with_one_active_key_are_retried_one_at_a_time(store: Store) -> None:
    first, second = [await _dead_letter(store, active_key="sync") for _ in range(2)]

    added = await store.add([retry_copy(first, new_id()), retry_copy(second, new_id())])

    assert [each.created for each in added] == [True, False]
    assert added[1].id == first.id

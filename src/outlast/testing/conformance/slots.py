"""A slot is claimed once: with a job for good, or without one until a later claim."""

from dataclasses import replace

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import Misfired
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, Slot
from outlast.core.schedule import CLAIMED, Schedule, SlotOutcome, SlotRecord
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.schedules import FireResult, SetSchedule
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SECOND,
    ended,
    job_of,
    make_firing,
    make_job,
    make_plan,
    put,
    put_schedule,
    settle,
    started,
    take_many,
)

UNCLAIMED = [outcome for outcome in SlotOutcome if outcome not in CLAIMED]


async def _slot(store: Store, schedule: Schedule) -> SlotRecord | None:
    assert schedule.next_slot is not None
    [row] = await store.slot_rows(schedule.series, [schedule.next_slot])
    return row


async def _stands(store: Store, schedule: Schedule) -> Schedule:
    found = await store.schedule(schedule.id)
    assert found is not None
    return found


async def test_firing_writes_slot_job_and_schedule_together(store: Store, clock: FakeClock) -> None:
    schedule = await put_schedule(store, clock.now() - SECOND)
    firing = make_firing(schedule, SlotOutcome.LATE)
    assert firing.job is not None
    job_id = firing.job.id
    firing = replace(firing, job=replace(firing.job, start_within=HOUR), reason="woke late")

    assert await store.fire([firing]) == [FireResult.WRITTEN]

    job = await job_of(store, job_id)
    assert (job.slot_at, job.schedule_id) == (schedule.next_slot, schedule.id)
    assert job.start_deadline == schedule.next_slot + HOUR  # type: ignore[operator]
    assert job.state is State.QUEUED
    assert await _slot(store, schedule) == SlotRecord(
        slot=firing.slot,
        outcome=SlotOutcome.LATE,
        planned=firing.planned,
        actual=clock.now(),
        schedule_id=schedule.id,
        job_id=job.id,
        reason="woke late",
    )
    stands = await _stands(store, schedule)
    assert stands.next_slot == stands.next_trigger_at == firing.next_slot
    assert stands.last_triggered_at == firing.slot.at


async def test_one_slot_is_fired_once_however_often_it_is_tried(
    store: Store, clock: FakeClock
) -> None:
    schedule = await put_schedule(store, clock.now())
    firings = [make_firing(schedule) for _ in range(3)]

    fired = await store.fire(firings)

    assert fired == [FireResult.WRITTEN, FireResult.STALE, FireResult.STALE]
    [job] = await take_many(store)
    assert firings[0].job is not None
    assert job.id == firings[0].job.id


@pytest.mark.parametrize("change", ["version", "enabled", "gone", "slot"])
async def test_firing_of_a_schedule_that_is_not_as_expected_writes_nothing(
    store: Store, clock: FakeClock, change: str
) -> None:
    schedule = await put_schedule(store, clock.now(), enabled=change != "enabled")
    firing = make_firing(schedule)
    if change == "version":
        firing = replace(firing, version=schedule.version + 1)
    if change == "slot":
        firing = replace(firing, slot=replace(firing.slot, at=clock.now() + SECOND))
    if change == "gone":
        await store.set_schedule(schedule.id, expected=schedule.version, value=None)

    assert await store.fire([firing]) == [FireResult.STALE]

    assert await store.slots(schedule.series, limit=MANY) == []
    assert await take_many(store) == []


@pytest.mark.parametrize("outcome", UNCLAIMED)
async def test_answer_without_a_job_moves_on_and_triggers_nothing(
    store: Store, clock: FakeClock, outcome: SlotOutcome
) -> None:
    schedule = await put_schedule(store, clock.now())

    assert await store.fire([make_firing(schedule, outcome)]) == [FireResult.WRITTEN]

    row, stands = await _slot(store, schedule), await _stands(store, schedule)
    assert row is not None
    assert (row.outcome, row.job_id) == (outcome, None)
    assert stands.next_slot == clock.now() + HOUR
    assert stands.last_triggered_at is None
    assert await take_many(store) == []


@pytest.mark.parametrize("outcome", UNCLAIMED)
async def test_slot_without_a_job_may_be_taken_by_hand_once(
    store: Store, clock: FakeClock, outcome: SlotOutcome
) -> None:
    schedule = await put_schedule(store, clock.now())
    firing = make_firing(schedule, outcome)
    await store.fire([firing])
    clock.advance(SECOND)
    by_hand, again = make_job(slot=firing.slot), make_job(slot=firing.slot)

    added = await store.add([by_hand, again])

    assert [each.created for each in added] == [True, False]
    assert added[1].id == by_hand.id
    assert await _slot(store, schedule) == SlotRecord(
        slot=firing.slot,
        outcome=SlotOutcome.MANUAL,
        planned=firing.planned,
        actual=clock.now(),
        schedule_id=schedule.id,
        job_id=by_hand.id,
        reason=outcome,
    )


async def test_slot_taken_by_hand_is_passed_by(store: Store, clock: FakeClock) -> None:
    schedule = await put_schedule(store, clock.now())
    firing = make_firing(schedule)
    job_id = await put(store, slot=firing.slot, schedule_id=schedule.id)

    assert await store.fire([firing, firing]) == [FireResult.TAKEN, FireResult.STALE]

    row, stands = await _slot(store, schedule), await _stands(store, schedule)
    assert row is not None
    assert (row.outcome, row.job_id, row.schedule_id) == (SlotOutcome.MANUAL, job_id, schedule.id)
    assert (stands.next_slot, stands.last_triggered_at) == (firing.next_slot, None)
    assert [job.id for job in await take_many(store)] == [job_id]


async def test_claimed_slot_is_never_taken_again_whatever_became_of_its_job(
    store: Store, clock: FakeClock
) -> None:
    schedule = await put_schedule(store, clock.now())
    firing = make_firing(schedule)
    await store.fire([firing])
    [claim] = await take_many(store)
    clock.advance(HOUR)

    [added] = await store.add([make_job(slot=firing.slot)])

    assert not added.created
    assert added.id == claim.id


async def test_two_schedules_of_one_name_share_their_slots(store: Store, clock: FakeClock) -> None:
    one = await put_schedule(store, clock.now(), name="one", delivery=Delivery.ONCE)
    two = await put_schedule(store, clock.now(), name="two", delivery=Delivery.ONCE)

    fired = await store.fire([make_firing(one), make_firing(two)])

    assert one.series == two.series
    assert fired == [FireResult.WRITTEN, FireResult.TAKEN]
    assert (await _stands(store, two)).next_slot == clock.now() + HOUR
    assert len(await take_many(store)) == 1


@pytest.mark.parametrize("keyed", [{"active_key": "k"}, {"key": DedupeKey(key="k")}], ids=str)
async def test_firing_whose_key_is_taken_writes_nothing(
    store: Store, clock: FakeClock, keyed: dict[str, object]
) -> None:
    await put(store, **keyed)
    schedule = await put_schedule(store, clock.now())
    firing = make_firing(schedule, job=make_job(**keyed))

    assert await store.fire([firing]) == [FireResult.BUSY]

    assert await _stands(store, schedule) == schedule
    assert await _slot(store, schedule) is None


async def test_bad_job_never_sinks_the_firings_beside_it(store: Store, clock: FakeClock) -> None:
    schedules = [await put_schedule(store, clock.now(), name=name) for name in "abc"]
    firings = [make_firing(each) for each in schedules]
    firings[1] = replace(firings[1], job=make_job(name="two words"))

    fired = await store.fire(firings)

    assert fired == [FireResult.WRITTEN, FireResult.REFUSED, FireResult.WRITTEN]
    assert await _stands(store, schedules[1]) == schedules[1]
    assert await _slot(store, schedules[1]) is None
    assert len(await take_many(store)) == 2


async def test_slot_whose_job_could_not_start_is_skipped_and_stays_claimed(
    store: Store, clock: FakeClock
) -> None:
    schedule = await put_schedule(store, clock.now())
    firing = make_firing(schedule, job=make_job(start_within=SECOND))
    await store.fire([firing])
    clock.advance(HOUR)

    [late] = await store.missed_start_deadline(limit=MANY)
    assert await settle(store, late, Misfired())

    row = await _slot(store, schedule)
    assert row is not None
    assert (row.outcome, row.job_id) == (SlotOutcome.SKIPPED, late.id)
    [added] = await store.add([make_job(slot=firing.slot)])
    assert not added.created


async def test_slots_come_latest_first_page_by_page(store: Store, clock: FakeClock) -> None:
    schedule = await put_schedule(store, clock.now())
    outcomes = [SlotOutcome.MISSED, SlotOutcome.COALESCED, SlotOutcome.RAN, SlotOutcome.OVERLAP]
    for outcome in outcomes:
        await store.fire([make_firing(await _stands(store, schedule), outcome)])

    first = await store.slots(schedule.series, limit=3)
    rest = await store.slots(schedule.series, before=first[-1].slot.at, limit=MANY)

    assert [row.outcome for row in (*first, *rest)] == outcomes[::-1]
    assert await store.slots("another", limit=MANY) == []


async def test_slot_rows_answer_in_the_order_asked(store: Store, clock: FakeClock) -> None:
    now = clock.now()
    for hours in (1, 2):
        await put(store, slot=Slot(series="s", at=now + hours * HOUR))

    rows = await store.slot_rows("s", [now + 2 * HOUR, now, now + HOUR])

    assert [row and row.slot.at for row in rows] == [now + 2 * HOUR, None, now + HOUR]


async def test_slots_stay_when_their_job_is_pruned(store: Store, clock: FakeClock) -> None:
    slot = Slot(series="s", at=clock.now())
    job_id: JobId = await ended(store, slot=slot)
    clock.advance(2 * HOUR)

    assert await store.prune(older_than=HOUR, limit=MANY) == 1

    [row] = await store.slots("s", limit=MANY)
    assert (row.job_id, row.outcome) == (job_id, SlotOutcome.MANUAL)
    [added] = await store.add([make_job(slot=slot)])
    assert not added.created


async def test_names_that_run_are_those_of_once_jobs_with_an_open_run(store: Store) -> None:
    await started(store, delivery=Delivery.ONCE, name="runs")
    await started(store, name="leased")
    await ended(store, delivery=Delivery.ONCE, name="over")
    await put(store, delivery=Delivery.ONCE, name="waits")

    running = await store.running_names({"runs", "leased", "over", "waits", "none"})

    assert running == {"runs"}
    assert await store.running_names(()) == frozenset()


async def test_schedule_edited_between_two_looks_keeps_its_new_time(
    store: Store, clock: FakeClock
) -> None:
    schedule = await put_schedule(store, clock.now())
    later = clock.now() + 5 * HOUR
    value = SetSchedule(plan=make_plan(), next_slot=later, next_trigger_at=later)
    edited = await store.set_schedule(schedule.id, expected=schedule.version, value=value)

    assert await store.fire([make_firing(schedule)]) == [FireResult.STALE]

    assert await _stands(store, schedule) == edited

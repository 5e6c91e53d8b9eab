"""A schedule is written by its version and found when it is due."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.delivery import Delivery
from outlast.core.schedule import Fold, Gap, Schedule, SlotOutcome, TimeRule
from outlast.errors import InvalidArgument
from outlast.store.contract import Store
from outlast.store.contract.schedules import FireResult, SetSchedule
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SECOND,
    make_firing,
    make_plan,
    new_id,
    put_schedule,
)


async def _edit(store: Store, schedule: Schedule, **over: object) -> Schedule | None:
    plan = replace(schedule.plan, **over)  # type: ignore[arg-type]  # the names of its fields
    value = SetSchedule(
        plan=plan, next_slot=schedule.next_slot, next_trigger_at=schedule.next_trigger_at
    )
    return await store.set_schedule(schedule.id, expected=schedule.version, value=value)


async def _due_names(store: Store, ahead: timedelta = timedelta(0), limit: int = MANY) -> list[str]:
    due = await store.due_schedules(ahead=ahead, limit=limit)
    return [schedule.name for schedule in due.schedules]


async def test_schedule_is_kept_as_written(store: Store, clock: FakeClock) -> None:
    rule = TimeRule(
        cron="*/5 2 * * *",
        timezone="Europe/Berlin",
        gap=Gap.SKIP,
        fold=Fold.SECOND,
        start=START,
        end=START + HOUR,
    )
    plan = make_plan(
        rule=rule,
        template="weekly",
        params='{"ü":[1,null]}',
        coalesce=False,
        misfire_grace=SECOND,
        max_instances=3,
        jitter=SECOND,
        declared="d",
        declared_by="shop.jobs",
        disabled_reason="undeclared",
        queue="mail",
    )
    value = SetSchedule(plan=plan, next_slot=START, next_trigger_at=START + SECOND)

    written = await store.set_schedule(schedule_id := new_id(), expected=None, value=value)

    assert written is not None
    assert (written.plan, written.id) == (plan, schedule_id)
    assert (written.next_slot, written.next_trigger_at) == (START, START + SECOND)
    assert written.last_triggered_at is None
    assert written.created_at == written.updated_at == clock.now() == await store.now()
    assert await store.schedule(plan.name) == await store.schedule(schedule_id) == written
    assert await store.schedule("other") is None


async def test_schedule_is_edited_only_by_who_knows_its_version(
    store: Store, clock: FakeClock
) -> None:
    first = await put_schedule(store, START)
    clock.advance(SECOND)

    second = await _edit(store, first, name="renamed", coalesce=False)

    assert second is not None
    assert (second.id, second.name, second.created_at) == (first.id, "renamed", first.created_at)
    assert second.version > first.version
    assert second.updated_at > first.updated_at
    assert await _edit(store, first, name="again") is None
    assert await store.schedule("nightly") is None
    assert await store.schedules(limit=MANY) == [second]


async def test_version_of_a_schedule_never_comes_back(store: Store) -> None:
    first = await put_schedule(store, START)
    gone = await store.set_schedule(first.id, expected=first.version, value=None)
    value = SetSchedule(plan=first.plan, next_slot=START, next_trigger_at=START)

    again = await store.set_schedule(first.id, expected=None, value=value)

    assert gone == first
    assert again is not None
    assert again.version > first.version
    assert await store.set_schedule(first.id, expected=first.version, value=None) is None
    assert await store.set_schedule(new_id(), expected=1, value=None) is None


async def test_two_schedules_never_have_one_name(store: Store) -> None:
    one = await put_schedule(store, START, name="one")
    two = await put_schedule(store, START, name="two")
    value = SetSchedule(plan=one.plan, next_slot=START, next_trigger_at=START)

    assert await store.set_schedule(new_id(), expected=None, value=value) is None
    assert await _edit(store, two, name="one") is None
    assert await store.schedules(limit=MANY) == [one, two]


async def test_schedules_come_by_name_page_by_page(store: Store) -> None:
    for name in ("b", "a", "C", "a.1"):
        await put_schedule(store, START, name=name)

    first = await store.schedules(limit=2)
    rest = await store.schedules(after=first[-1].name, limit=MANY)

    assert [each.name for each in (*first, *rest)] == ["C", "a", "a.1", "b"]


@pytest.mark.parametrize(
    "over",
    [
        {"name": "two words"},
        {"name": "00000000-0000-7000-8000-000000000001"},
        {"max_instances": 0},
        {"max_instances": 101},
        {"max_instances": 2, "delivery": Delivery.ONCE},
        {"misfire_grace": timedelta(0)},
        {"rule": TimeRule(every=timedelta(milliseconds=1))},
        {"rule": TimeRule(every=HOUR, start=START, end=START - SECOND)},
        {"params": '"' + "x" * 262_143 + '"'},
    ],
    ids=str,
)
async def test_schedule_that_cannot_be_is_refused(store: Store, over: dict[str, Any]) -> None:
    value = SetSchedule(plan=make_plan(**over), next_slot=START, next_trigger_at=START)

    with pytest.raises(InvalidArgument):
        await store.set_schedule(new_id(), expected=None, value=value)

    assert await store.schedules(limit=MANY) == []


async def test_due_are_the_enabled_ones_whose_time_has_come_the_earliest_first(
    store: Store, clock: FakeClock
) -> None:
    now = clock.now()
    await put_schedule(store, now, name="second")
    await put_schedule(store, now - SECOND, name="first")
    await put_schedule(store, now - HOUR, name="off", enabled=False)
    await put_schedule(store, now + SECOND, name="soon")
    await put_schedule(store, now + HOUR, name="later")

    due = await store.due_schedules(limit=MANY)

    assert [each.name for each in due.schedules] == ["first", "second"]
    assert (due.now, due.next_trigger_at) == (now, now + SECOND)
    assert await _due_names(store, limit=1) == ["first"]
    assert await _due_names(store, ahead=SECOND) == ["first", "second", "soon"]
    assert (await store.due_schedules(ahead=HOUR, limit=MANY)).next_trigger_at is None


async def test_schedule_without_a_next_slot_is_never_due(store: Store, clock: FakeClock) -> None:
    schedule = await put_schedule(store, clock.now())
    last = make_firing(schedule, next_slot=None, next_trigger_at=None)

    assert await store.fire([last]) == [FireResult.WRITTEN]

    assert await _due_names(store, ahead=HOUR * 1000) == []


async def test_triggers_raise_no_version_and_edits_keep_the_last_trigger(
    store: Store, clock: FakeClock
) -> None:
    schedule = await put_schedule(store, clock.now())
    await store.fire([make_firing(schedule)])
    fired = await store.schedule(schedule.name)
    assert fired is not None

    edited = await _edit(store, fired, enabled=False)

    assert fired.version == schedule.version
    assert fired.last_triggered_at == schedule.next_slot
    assert fired.updated_at == schedule.updated_at
    assert edited is not None
    assert edited.last_triggered_at == schedule.next_slot


async def test_slots_outlive_their_schedule(store: Store, clock: FakeClock) -> None:
    schedule = await put_schedule(store, clock.now())
    await store.fire([make_firing(schedule, SlotOutcome.MISSED)])

    assert await store.set_schedule(schedule.id, expected=schedule.version, value=None)

    [row] = await store.slots(schedule.series, limit=MANY)
    assert row.outcome is SlotOutcome.MISSED

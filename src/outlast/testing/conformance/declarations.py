"""A schedule that no live worker declares is disabled, and enabled when it is declared again.

The store keeps what these judgements need: the workers with their times, and the schedules.
"""

from datetime import timedelta

from outlast.core.declaration import UNDECLARED_AFTER
from outlast.core.schedule import Schedule
from outlast.scheduler.declaration_check import DeclarationCheck
from outlast.scheduler.plan_builder import JobSource, edited_plan, with_next_slot
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SECOND,
    TICK,
    make_holder,
    make_worker,
    put_schedule,
)

APP = "shop.jobs"
OLD, NEW = make_holder("old"), make_holder("new")
MINUTE = timedelta(minutes=1)


async def _declared(store: Store, clock: FakeClock, name: str = "nightly") -> Schedule:
    over = {"declared": "digest", "declared_by": APP}
    return await put_schedule(store, clock.now() + 24 * HOUR, name=name, **over)


async def _start(store: Store, name: str, *schedules: str, app: str = APP) -> None:
    await store.register_worker(make_worker(name, app=app, schedules=schedules))
    await store.heartbeat(make_holder(name), span=24 * HOUR)


async def _check(store: Store, name: str = "nightly") -> tuple[bool, str | None]:
    """Run the check; return whether the schedule is enabled, and why not."""
    await DeclarationCheck(store).run_once()
    found = await store.schedule(name)
    assert found is not None, "a schedule is never deleted"
    return found.plan.enabled, found.plan.disabled_reason


async def test_schedule_that_no_worker_declares_is_disabled_after_ten_minutes(
    store: Store, clock: FakeClock
) -> None:
    await _declared(store, clock)
    await _start(store, "new", "other")
    clock.advance(UNDECLARED_AFTER - TICK)
    too_soon = await _check(store)
    clock.advance(TICK)

    assert too_soon == (True, None)
    assert await _check(store) == (False, "undeclared")
    assert (await store.due_schedules(ahead=48 * HOUR, limit=MANY)).schedules == []


async def test_ten_minutes_count_from_the_end_of_the_last_worker_that_declared_it(
    store: Store, clock: FakeClock
) -> None:
    await _declared(store, clock)
    await _start(store, "old", "nightly")
    await _start(store, "new")
    clock.advance(HOUR)
    together = await _check(store)
    await store.deregister_worker(OLD)
    clock.advance(UNDECLARED_AFTER - TICK)
    too_soon = await _check(store)
    clock.advance(TICK)

    assert together == too_soon == (True, None)
    assert await _check(store) == (False, "undeclared")


async def test_rolling_deploy_disables_nothing_that_one_live_worker_declares(
    store: Store, clock: FakeClock
) -> None:
    await _declared(store, clock)
    await _start(store, "old", "nightly")
    for number in range(5):
        await _start(store, f"new-{number}")

    for _ in range(5):
        clock.advance(UNDECLARED_AFTER)
        assert await _check(store) == (True, None)


async def test_time_without_a_worker_of_the_app_breaks_the_ten_minutes(
    store: Store, clock: FakeClock
) -> None:
    await _declared(store, clock)
    await _start(store, "new")
    await _start(store, "another", app="other.jobs")
    clock.advance(UNDECLARED_AFTER - MINUTE)
    await store.deregister_worker(NEW)
    clock.advance(SECOND)
    await _start(store, "again")
    clock.advance(UNDECLARED_AFTER - TICK)
    after_a_break = await _check(store)
    clock.advance(TICK)

    assert after_a_break == (True, None)
    assert await _check(store) == (False, "undeclared")


async def test_workers_that_relieve_each_other_are_no_break(store: Store, clock: FakeClock) -> None:
    await _declared(store, clock)
    await _start(store, "first")
    clock.advance(UNDECLARED_AFTER / 2)
    await _start(store, "second")
    await store.deregister_worker(make_holder("first"))
    clock.advance(UNDECLARED_AFTER / 2)

    assert await _check(store) == (False, "undeclared")


async def test_schedule_of_another_app_or_made_by_hand_is_not_touched(
    store: Store, clock: FakeClock
) -> None:
    await _declared(store, clock)
    await put_schedule(store, clock.now() + 24 * HOUR, name="by-hand")
    await _start(store, "another", app="other.jobs")
    clock.advance(HOUR)

    assert await _check(store) == (True, None)
    assert await _check(store, "by-hand") == (True, None)


async def test_worker_that_declares_it_again_enables_it(store: Store, clock: FakeClock) -> None:
    await _declared(store, clock)
    await _start(store, "new")
    clock.advance(UNDECLARED_AFTER)
    disabled = await _check(store)
    await _start(store, "old", "nightly")

    assert disabled == (False, "undeclared")
    assert await _check(store) == (True, None)
    enabled = await store.schedule("nightly")
    assert enabled is not None
    assert enabled.next_slot is not None
    assert enabled.next_slot > clock.now()


async def test_schedule_that_an_operator_disabled_stays_disabled(
    store: Store, clock: FakeClock
) -> None:
    schedule = await _declared(store, clock)
    await _edit(store, clock, schedule, enabled=False)
    await _start(store, "new")
    clock.advance(UNDECLARED_AFTER)
    undeclared = await _check(store)
    await _start(store, "old", "nightly")

    assert undeclared == (False, None)
    assert await _check(store) == (False, None)


async def test_schedule_that_an_operator_keeps_is_not_disabled_again(
    store: Store, clock: FakeClock
) -> None:
    await _declared(store, clock)
    await _start(store, "new")
    clock.advance(UNDECLARED_AFTER)
    await _check(store)
    undeclared = await store.schedule("nightly")
    assert undeclared is not None
    await _edit(store, clock, undeclared, enabled=True)
    clock.advance(HOUR)

    assert await _check(store) == (True, None)


async def test_registrations_outlast_the_ten_minutes_however_short_the_retention_is(
    store: Store, clock: FakeClock
) -> None:
    await _declared(store, clock)
    await _start(store, "new")
    await _start(store, "old", "nightly")
    clock.advance(UNDECLARED_AFTER)
    await store.deregister_worker(OLD)
    clock.advance(UNDECLARED_AFTER - TICK)

    await store.prune(older_than=SECOND, limit=MANY)

    assert await _check(store) == (True, None)


async def _edit(store: Store, clock: FakeClock, schedule: Schedule, *, enabled: bool) -> None:
    source = JobSource(schedule.plan.making, None, "{}")
    plan = edited_plan(schedule.plan, {"enabled": enabled}, source)
    value = with_next_slot(plan, schedule.id, clock.now(), schedule)
    assert await store.set_schedule(schedule.id, expected=schedule.version, value=value)

"""Slots are on time: short intervals, after a late round, beside a frozen lock holder."""

from datetime import timedelta

import pytest
from loop_world import SECOND, VirtualWait, lateness, loop_of, run_for
from trigger_world import RAN

from outlast import Outlast
from outlast.core.ids import Ids
from outlast.core.schedule import SlotOutcome
from outlast.scheduler.loop import LEADER_LOCK, LOCK_ATTEMPT_S, OVERDUE_S, STANDBY_SPREAD_S
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock

ON_TIME_S = 0.01
"""Virtual seconds: the loop adds a millisecond to its sleep, and the store takes none."""


async def interval(app: Outlast, every: str = "1s", **over: object) -> None:
    given = {"coalesce": True, "misfire_grace": "5m", **over}
    await app.schedules.save("s", None, "report", every=every, **given)


@pytest.mark.parametrize("poll", [0.5, 5.0])
@pytest.mark.parametrize(("every", "slots"), [("1s", 20), ("3s", 10)])
async def test_every_slot_of_a_short_interval_is_on_time(
    app: Outlast, store: Store, clock: FakeClock, ids: Ids, every: str, slots: int, poll: float
) -> None:
    await interval(app, every)
    wait = VirtualWait(clock, slots * int(every[0]) * SECOND)

    await run_for(loop_of(store, ids, clock, wait, poll=poll))

    found = await lateness(app)
    assert {outcome for outcome, _ in found} == {RAN}
    assert len(found) in {slots - 1, slots}  # the last one may be due at the end
    assert max(late for _, late in found) < ON_TIME_S


@pytest.mark.parametrize("poll", [0.5, 5.0])
async def test_after_a_late_round_every_slot_is_on_time_again(
    app: Outlast, store: Store, clock: FakeClock, ids: Ids, poll: float
) -> None:
    await interval(app, "3s", coalesce=False)
    wait = VirtualWait(clock, 60 * SECOND, late={3: 10.0})

    await run_for(loop_of(store, ids, clock, wait, poll=poll))

    found = await lateness(app)
    late = [number for number, (outcome, _) in enumerate(found) if outcome is SlotOutcome.LATE]
    assert late, "the round was not late"
    assert late == list(range(late[0], late[0] + len(late)))
    assert all(by < ON_TIME_S for _, by in found[late[-1] + 2 :])
    assert len(found) >= 18


async def test_schedules_of_different_intervals_are_all_on_time(
    app: Outlast, store: Store, clock: FakeClock, ids: Ids
) -> None:
    everies = ("1s", "2s", "7s", "11s")
    for every in everies:
        await app.schedules.save(
            every, None, "report", every=every, coalesce=False, misfire_grace="5m"
        )

    await run_for(loop_of(store, ids, clock, VirtualWait(clock, 45 * SECOND), poll=5.0))

    found = {every: await lateness(app, every) for every in everies}
    assert {every: len(each) // 2 * 2 for every, each in found.items()} == {
        "1s": 44,
        "2s": 22,
        "7s": 6,
        "11s": 4,
    }
    assert all(late < ON_TIME_S for each in found.values() for _, late in each)


async def test_the_trigger_keeps_nothing_of_past_slots(
    app: Outlast, store: Store, clock: FakeClock, ids: Ids
) -> None:
    await interval(app)
    loop = loop_of(store, ids, clock, VirtualWait(clock, 30 * SECOND))

    await run_for(loop)

    kept = [each for each in vars(loop._trigger).values() if hasattr(each, "__len__")]
    assert len(await lateness(app)) >= 28
    assert sum(map(len, kept)) <= 1


async def test_an_overdue_slot_is_fired_while_another_process_has_the_lock(
    app: Outlast, store: Store, clock: FakeClock, ids: Ids
) -> None:
    """With the shortest grace: the slots are neither missed nor coalesced."""
    await interval(app, misfire_grace="1s")
    held = await store.acquire_lock(LEADER_LOCK)
    assert held is not None

    await run_for(loop_of(store, ids, clock, VirtualWait(clock, 8 * SECOND)))

    found = await lateness(app)
    assert {outcome for outcome, _ in found} == {RAN}
    assert len(found) >= 6
    assert min(late for _, late in found) >= OVERDUE_S
    assert max(late for _, late in found) <= OVERDUE_S + STANDBY_SPREAD_S + ON_TIME_S
    await held.release()


async def test_a_standby_leads_soon_after_the_lock_is_free(
    app: Outlast, store: Store, clock: FakeClock, ids: Ids
) -> None:
    await interval(app, "1h")
    held = await store.acquire_lock(LEADER_LOCK)
    assert held is not None
    loop = loop_of(store, ids, clock, VirtualWait(clock, 3 * SECOND))
    await run_for(loop)
    await held.release()

    loop._wait = VirtualWait(clock, timedelta(seconds=3 * LOCK_ATTEMPT_S))
    attempts = 0
    while not await loop._is_leader():
        await loop._wait(None, await loop._stand_by())  # type: ignore[arg-type]
        attempts += 1

    assert attempts <= 3
    await loop._lock.release()  # type: ignore[union-attr]


async def test_a_standby_leaves_slots_alone_that_are_not_overdue(
    app: Outlast, store: Store, clock: FakeClock, ids: Ids
) -> None:
    await interval(app)
    held = await store.acquire_lock(LEADER_LOCK)
    assert held is not None
    loop = loop_of(store, ids, clock, VirtualWait(clock, SECOND))
    clock.advance(timedelta(seconds=1 + OVERDUE_S / 2))

    pause = await loop._stand_by()

    assert await lateness(app) == []
    assert pause == pytest.approx(OVERDUE_S / 2 + STANDBY_SPREAD_S)
    await held.release()

"""Several triggers at once, and slots that were prepared before they are due."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from random import Random

import pytest
from trigger_world import HOUR, LATE, MINUTE, MISSED, OVERLAP, RAN, history, hourly, take

from outlast import Outlast
from outlast.core.ids import Ids
from outlast.core.schedule import Firing, SlotOutcome
from outlast.scheduler.trigger import Trigger
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.contract.schedules import FireResult
from outlast.testing.clock import START, FakeClock
from outlast.verify import verify


async def test_three_schedulers_cut_off_at_random_miss_no_slot_and_double_none(
    app: Outlast, store: Store, clock: FakeClock, ids: Ids
) -> None:
    random, schedules, minutes = Random(11), 20, 10
    for number in range(schedules):
        await app.schedules.save(
            f"s{number}", "* * * * *", "report", coalesce=False, misfire_grace="1h"
        )

    for _ in range(minutes):
        clock.advance(MINUTE)
        workers = [asyncio.create_task(Trigger(store, ids.job).run_once()) for _ in range(3)]
        for _ in range(random.randrange(30)):
            await asyncio.sleep(0)
        random.choice(workers).cancel()
        await asyncio.wait(workers)
        await Trigger(store, ids.job).run_once()

    reported = {await slots_of(app, f"s{number}") for number in range(schedules)}
    assert reported == {tuple((minute, RAN) for minute in range(1, minutes + 1))}
    assert len(await store.find(Filter(), limit=999)) == schedules * minutes
    assert (await verify(store)).violations == ()


async def slots_of(app: Outlast, name: str) -> tuple[tuple[int, SlotOutcome], ...]:
    return tuple(await history(app, name))


async def test_many_schedulers_at_once_fire_each_slot_once(
    app: Outlast, store: Store, clock: FakeClock, ids: Ids
) -> None:
    for number in range(30):
        await app.schedules.save(
            f"s{number}", "* * * * *", "report", coalesce=False, misfire_grace="1h"
        )
    clock.advance(10 * MINUTE)

    done = await asyncio.gather(*(Trigger(store, ids.job).run_once() for _ in range(4)))

    assert sum(sum(each.outcomes.values()) for each in done) == 300
    assert len(await take(store)) == 300


async def test_slots_behind_one_that_another_process_answered_are_counted(
    app: Outlast,
    store: Store,
    clock: FakeClock,
    trigger: Trigger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await app.schedules.save("s", "* * * * *", "report", coalesce=False, misfire_grace="1h")
    clock.advance(3 * MINUTE)
    fire = store.fire

    async def second(firings: Sequence[Firing]) -> list[FireResult]:
        await fire(firings[:1])
        return await fire(firings)

    monkeypatch.setattr(store, "fire", second)
    done = await trigger.run_once()

    assert done.outcomes == {LATE: 1, RAN: 1}
    assert [row.outcome for row in await app.schedules.history("s")] == [RAN, LATE, LATE]


@pytest.mark.parametrize("job_type", ["report", "brief"])
async def test_what_was_made_ready_is_fired_on_time_and_not_twice(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger, ids: Ids, job_type: str
) -> None:
    await app.templates.save("hello", "greet", params={"name": "Ada"})
    await app.schedules.save("t", "0 * * * *", template="hello", coalesce=True, misfire_grace="5m")
    await hourly(app, job_type)
    clock.advance(HOUR - timedelta(seconds=2))
    await trigger.prepare(START + HOUR, timedelta(seconds=5))
    other = Trigger(store, ids.job)
    await other.prepare(START + HOUR, timedelta(seconds=5))
    early = (await trigger.run_once()).outcomes
    clock.advance(timedelta(seconds=2))

    done = [(await each.run_once()).outcomes for each in (trigger, other)]

    assert early == {}
    assert done == [{RAN: 2}, {}]
    assert len(await store.find(Filter(), limit=9)) == 2


@pytest.mark.parametrize("change", ["edited", "paused", "running", "late"])
async def test_what_was_made_ready_and_is_so_no_longer_is_not_fired(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger, change: str
) -> None:
    await hourly(app, "brief")
    clock.advance(HOUR - timedelta(seconds=2))
    await trigger.prepare(START + HOUR, timedelta(seconds=5))
    if change == "edited":
        await app.schedules.edit("s", cron="30 * * * *")
    if change == "paused":
        await app.schedules.pause("s")
    if change == "running":
        await app.schedules.run("s", START)
        assert await take(store)
    clock.advance(timedelta(minutes=10) if change == "late" else timedelta(seconds=2))

    done = (await trigger.run_once()).outcomes

    assert done == {"running": {OVERLAP: 1}, "late": {MISSED: 1}}.get(change, {})

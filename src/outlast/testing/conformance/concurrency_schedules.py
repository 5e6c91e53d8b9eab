"""Capability SHARED: processes race to fire schedules. Takes a fixture `url`."""

from functools import partial

from outlast.core.schedule import Schedule, SlotOutcome
from outlast.store.contract import Store
from outlast.store.contract.schedules import FireResult
from outlast.testing.conformance import sizes
from outlast.testing.conformance.factories import HOUR, MANY, make_firing, put_schedule
from outlast.testing.conformance.race_runner import opened, race
from outlast.verify import verify


async def fire_next(store: Store, *, name: str) -> FireResult:
    """Fire the slot that comes next as this process sees it."""
    schedule = await store.schedule(name)
    assert schedule is not None
    [fired] = await store.fire([make_firing(schedule)])
    return fired


async def fire_known(store: Store, *, schedule: Schedule) -> FireResult:
    """Fire a slot that others fire too."""
    [fired] = await store.fire([make_firing(schedule)])
    return fired


async def test_one_slot_is_fired_by_one_of_many_processes(url: str) -> None:
    size = sizes.SIZES
    async with opened(url) as store:
        now = await store.now()
        schedules = [
            await put_schedule(store, now, name=f"round-{number}")
            for number in range(size.race_rounds)
        ]

    acts = [partial(fire_known, schedule=schedule) for schedule in schedules]
    told = await race(url, [acts] * size.race_processes)

    for answers in zip(*told, strict=True):
        assert answers.count(FireResult.WRITTEN) == 1
        assert answers.count(FireResult.STALE) == size.race_processes - 1
    async with opened(url) as store:
        for schedule in schedules:
            [row] = await store.slots(schedule.series, limit=MANY)
            assert row.outcome is SlotOutcome.RAN


async def test_processes_that_fire_whatever_is_next_never_fire_a_slot_twice(url: str) -> None:
    size = sizes.SIZES
    async with opened(url) as store:
        first = await store.now()
        schedule = await put_schedule(store, first, name="one")

    acts = [partial(fire_next, name="one")] * size.race_rounds
    told = await race(url, [acts] * size.race_processes)

    written = sum(answers.count(FireResult.WRITTEN) for answers in told)
    async with opened(url) as store:
        rows = await store.slots(schedule.series, limit=MANY)
        assert [row.slot.at for row in rows[::-1]] == [first + n * HOUR for n in range(written)]
        assert len({row.job_id for row in rows}) == written
        assert (await verify(store)).violations == ()

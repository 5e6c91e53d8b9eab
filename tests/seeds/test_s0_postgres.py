"""S0's slots on a server: claimed once however many processes trigger them, whoever is killed."""

from datetime import timedelta
from random import Random

import pytest

from holdfast import Holdfast
from holdfast.core.schedule import Outcome, SlotRecord
from holdfast.store.base import Filter
from holdfast.testing import sizes
from holdfast.testing.clock import START, FakeClock
from holdfast.verify import verify

from .kit import Child, race
from .schedulers import store_at, trigger_at_once, trigger_when_told

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
MANY = 10_000
SCHEDULES = 20


async def declare(url: str, cron: str) -> None:
    store = store_at(url, FakeClock())
    await store.open()
    app = Holdfast(store)
    app.job(name="brief", delivery="once")(_nothing)
    for number in range(SCHEDULES):
        name = f"brief-{number}"
        settings = {"coalesce": True, "misfire_grace": "300s", "max_instances": 1}
        await app.schedules.save(name, cron, "brief", job_name=name, **settings)
    await store.close()


async def proved(url: str) -> list[SlotRecord]:
    """Every slot that was answered; each has a job of its own, and nothing is refuted."""
    store = store_at(url, FakeClock())
    await store.open()
    rows = [
        row
        for number in range(SCHEDULES)
        for row in await store.slots(f"brief-{number}", limit=MANY)
    ]
    jobs = {job.id for job in await store.find(Filter(), limit=MANY)}
    assert len(jobs) == len(rows)
    assert {row.job_id for row in rows} == jobs
    assert (await verify(store)).violations == ()
    await store.close()
    return rows


@pytest.mark.slow
@pytest.mark.req("S0-6.h")
async def test_many_schedulers_race_for_twenty_slots_on_a_server(postgres_url: str) -> None:
    await declare(postgres_url, "0 * * * *")

    processes = 50 if sizes.SIZES.crash_on_either_side else 8
    told = race(trigger_at_once, processes, postgres_url, START + HOUR)

    assert sum(told) == SCHEDULES
    assert len(await proved(postgres_url)) == SCHEDULES


@pytest.mark.slow
@pytest.mark.req("S0-3.b")
async def test_three_schedulers_killed_at_random_on_a_server_miss_no_slot_and_double_none(
    postgres_url: str,
) -> None:
    random = Random(11)
    kills, minutes = (50, 100) if sizes.SIZES.crash_on_either_side else (6, 25)
    await declare(postgres_url, "* * * * *")
    deaths = set(random.sample(range(minutes), kills))
    crew = [Child(trigger_when_told, postgres_url) for _ in range(3)]
    assert [child.hear() for child in crew] == ["ready"] * 3

    for minute in range(minutes):
        moment = START + (minute + 1) * MINUTE
        for child in crew:
            child.tell(moment)
        if minute in deaths:
            victim = random.randrange(3)
            crew[victim]._ear.poll(random.random() * 0.02)
            crew[victim].__exit__(None, None, None)
            crew[victim] = Child(trigger_when_told, postgres_url)
            assert crew[victim].hear() == "ready"
            crew[victim].tell(moment)
        for child in crew:
            child.hear()
    for child in crew:
        child.__exit__(None, None, None)

    rows = await proved(postgres_url)
    assert {row.outcome for row in rows} == {Outcome.RAN}
    assert len(rows) == SCHEDULES * minutes


def _nothing() -> None: ...

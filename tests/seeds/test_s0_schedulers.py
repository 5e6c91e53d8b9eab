"""S0's slots, claimed once however many processes trigger them and whoever of them is killed."""

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.core.schedule import Outcome
from holdfast.testing.clock import START
from holdfast.testing.sizes import SIZES

from .kit import race
from .schedulers import SCHEDULES, declare, proved, storm, trigger_at_once

pytestmark = pytest.mark.slow

HOUR = timedelta(hours=1)


async def raced(place: Path | str) -> None:
    await declare(place, "0 * * * *")

    told = race(trigger_at_once, SIZES.slot_processes, place, START + HOUR)

    assert sum(told) == SCHEDULES
    assert len(await proved(place)) == SCHEDULES


async def survived(place: Path | str) -> None:
    await declare(place, "* * * * *")

    storm(place, minutes=SIZES.slot_minutes, kills=SIZES.slot_kills)

    rows = await proved(place)
    assert {row.outcome for row in rows} == {Outcome.RAN}
    assert len(rows) == SCHEDULES * SIZES.slot_minutes


@pytest.mark.req("S0-6.h")
async def test_many_schedulers_race_for_twenty_slots(path: Path) -> None:
    await raced(path)


@pytest.mark.req("S0-6.h")
async def test_many_schedulers_race_for_twenty_slots_on_a_server(postgres_url: str) -> None:
    await raced(postgres_url)


@pytest.mark.req("S0-3.b")
async def test_three_schedulers_killed_at_random_miss_no_slot_and_double_none(path: Path) -> None:
    await survived(path)


@pytest.mark.req("S0-3.b")
async def test_three_schedulers_killed_at_random_on_a_server_miss_no_slot_and_double_none(
    postgres_url: str,
) -> None:
    await survived(postgres_url)

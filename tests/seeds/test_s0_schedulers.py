"""S0's slots, claimed once however many processes trigger them and whoever of them is killed."""

from datetime import timedelta
from pathlib import Path

import pytest

from outlast.core.schedule import SlotOutcome
from outlast.testing.clock import START
from outlast.testing.conformance.sizes import SIZES

from .child_process import race
from .schedulers import SCHEDULES, declare, proved, storm, trigger_at_once
from .store_urls import keyvalue, store_url

pytestmark = pytest.mark.slow

HOUR = timedelta(hours=1)
FEWER = 5
"""A slot takes so many times as long on servers that are asked several times for each."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "keyvalue_url" in metafunc.fixturenames:
        metafunc.parametrize("keyvalue_url", keyvalue(), indirect=True)


@pytest.fixture
def keyvalue_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_url(request, tmp_path)


async def raced(place: Path | str) -> None:
    await declare(place, "0 * * * *")

    reported = race(trigger_at_once, SIZES.slot_processes, place, START + HOUR)

    assert sum(reported) == SCHEDULES
    assert len(await proved(place)) == SCHEDULES


async def survived(place: Path | str, *, fewer: int = 1) -> None:
    minutes = SIZES.slot_minutes // fewer
    await declare(place, "* * * * *")

    storm(place, minutes=minutes, kills=SIZES.slot_kills // fewer)

    rows = await proved(place)
    assert {row.outcome for row in rows} == {SlotOutcome.RAN}
    assert len(rows) == SCHEDULES * minutes


@pytest.mark.req("S0-6.h")
async def test_many_schedulers_race_for_twenty_slots(path: Path) -> None:
    await raced(path)


@pytest.mark.req("S0-6.h")
async def test_many_schedulers_race_for_twenty_slots_on_a_server(postgres_url: str) -> None:
    await raced(postgres_url)


@pytest.mark.req("S0-6.h")
async def test_many_schedulers_race_for_twenty_slots_on_a_key_value_store(
    keyvalue_url: str,
) -> None:
    await raced(keyvalue_url)


@pytest.mark.req("S0-3.b")
async def test_three_schedulers_killed_at_random_miss_no_slot_and_double_none(path: Path) -> None:
    await survived(path)


@pytest.mark.req("S0-3.b")
async def test_three_schedulers_killed_at_random_on_a_server_miss_no_slot_and_double_none(
    postgres_url: str,
) -> None:
    await survived(postgres_url)


@pytest.mark.req("S0-3.b")
async def test_three_schedulers_killed_at_random_on_a_key_value_store_miss_no_slot(
    keyvalue_url: str,
) -> None:
    await survived(keyvalue_url, fewer=FEWER)

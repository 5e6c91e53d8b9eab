"""An app over each store, by a clock that moves only when told, and its trigger."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from holdfast import Holdfast
from holdfast.core.ids import Ids
from holdfast.scheduler.trigger import Trigger
from holdfast.store.base import Store
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import FakeClock
from holdfast.testing.model_store import ModelStore
from holdfast.testing.postgres_clock import DatabaseClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids(clock: FakeClock) -> Ids:
    return Ids(clock.now, Random(7).getrandbits)


@pytest.fixture(params=["model", "sqlite", "postgres"])
async def store(
    request: pytest.FixtureRequest, clock: FakeClock, ids: Ids, tmp_path: Path
) -> AsyncIterator[Store]:
    made: Store = ModelStore(clock, ids)
    if request.param == "sqlite":
        made = SqliteStore(tmp_path / "jobs.db", clock=clock, ids=ids)
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        made = PostgresStore(url, clock=DatabaseClock(clock), ids=ids)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Holdfast]:
    async with Holdfast(store, poll="5ms", tick="5ms") as holdfast:
        holdfast.job(name="report")(_report)
        holdfast.job(name="brief", delivery="once")(_brief)
        holdfast.job(name="greet")(_greet)
        yield holdfast


def _report() -> None: ...
def _brief() -> None: ...
def _greet(name: str, times: int = 1) -> str:
    return name * times


@pytest.fixture
def trigger(store: Store, ids: Ids) -> Trigger:
    return Trigger(store, ids.job)

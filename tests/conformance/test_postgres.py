"""The PostgreSQL store keeps the contract, also when it outlives processes and is shared."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.core.event import EventRecord
from holdfast.core.ids import Ids
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.clock import FakeClock
from holdfast.testing.conformance import *  # noqa: F403 - the suite
from holdfast.testing.conformance.broken import *  # noqa: F403 - what recovery repairs
from holdfast.testing.conformance.durable import *  # noqa: F403 - capability DURABLE
from holdfast.testing.conformance.refuted import *  # noqa: F403 - what verify finds
from holdfast.testing.conformance.shared import *  # noqa: F403 - capability SHARED
from holdfast.testing.conformance.shared_queues import *  # noqa: F403 - the same, of queues
from holdfast.testing.conformance.shared_records import *  # noqa: F403 - same
from holdfast.testing.conformance.shared_schedules import *  # noqa: F403 - same
from holdfast.testing.histories import history_machine
from holdfast.testing.postgres_clock import DatabaseClock
from holdfast.testing.postgres_wreck import PostgresWrecker, empty

FEWER = 3
"""Each takes so many times as long as on a file."""

XMIN = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
XMAX = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"

if TYPE_CHECKING:
    from holdfast.testing.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def kept_url(postgres: "PostgresServer") -> Iterator[str]:
    """One schema for all tests of this module, which empty it first: making one takes longer."""
    url = postgres.new_database()
    yield url
    postgres.drop_database(url.rpartition("/")[2])


@pytest.fixture
async def store(kept_url: str, clock: FakeClock, ids: Ids) -> AsyncIterator[PostgresStore]:
    postgres = Settled(kept_url, clock=DatabaseClock(clock), ids=ids)
    await postgres.open()
    await empty(postgres.address)
    yield postgres
    await postgres.close()


@pytest.fixture
def wrecker(store: PostgresStore) -> PostgresWrecker:
    return PostgresWrecker(store.address)


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_random_histories_are_those_of_the_model(kept_url: str) -> None:
    """As in the other modules, but on a server that only a fixture knows."""

    def make(clock: FakeClock, ids: Ids) -> PostgresStore:
        return Emptied(kept_url, clock=DatabaseClock(clock), ids=ids)

    machine = history_machine(make)
    usual = machine.TestCase.settings
    fewer = settings(usual, max_examples=max(5, usual.max_examples // FEWER))
    run_state_machine_as_test(machine, settings=fewer)


class Settled(PostgresStore):
    """Shows its stream once nobody's older transaction is under way: tests share the server."""

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        async with self._lines.line("read-0").taken() as lane:
            ours = await lane.connection.fetchval(XMAX)
            while await lane.connection.fetchval(XMIN) < ours:  # noqa: ASYNC110 - not ours to tell
                await asyncio.sleep(0.001)
        return await super().stream(after=after, limit=limit)


class Emptied(Settled):
    """Begins with nothing when it is first opened."""

    _times = 0

    async def open(self) -> None:
        await super().open()
        if not self._times:
            await empty(self.address)
        self._times += 1

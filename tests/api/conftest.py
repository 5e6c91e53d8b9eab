"""An app over the model store with a hand that runs its jobs, or the plugin's `outlast`."""

from datetime import timedelta
from random import Random

import pytest

from outlast import Outlast
from outlast.core.decide import decide
from outlast.core.event import Event
from outlast.core.ids import Ids, JobId
from outlast.core.run import Claim, LeaseHolder
from outlast.store.contract.jobs import Filter
from outlast.testing.clock import FakeClock
from outlast.testing.model.store import ModelStore

HOLDER = LeaseHolder(instance_id="hand", boot_id="boot-1")


class Hand:
    """Plays the worker: takes the next job and lets an event happen to it."""

    def __init__(self, store: ModelStore, ids: Ids) -> None:
        self._store = store
        self._ids = ids

    async def take(self, *types: str, queue: str = "default") -> Claim:
        lease = timedelta(seconds=15)
        taken = await self._store.claim(HOLDER, queue=queue, types=types, limit=1, lease=lease)
        return taken[0]

    async def end(self, claim: Claim, event: Event) -> None:
        assert await self._store.apply([decide(claim, event, new_id=self._ids.job)]) == [True]

    async def stored(self) -> list[JobId]:
        return [job.id for job in await self._store.find(Filter(), limit=10_000)]


@pytest.fixture
def outlast_app():
    """What `outlast` tests; its own store could not even be opened."""
    return Outlast("sqlite:////nowhere/that/exists/jobs.db")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def ids(clock):
    return Ids(clock.now, Random(1).getrandbits)


@pytest.fixture
def store(clock, ids):
    return ModelStore(clock, ids)


@pytest.fixture
def hand(store, ids):
    return Hand(store, ids)


@pytest.fixture
async def app(store):
    async with Outlast(store, poll="10ms") as app:
        yield app

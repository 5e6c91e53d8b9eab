"""Transactions of the key-value store are cut by bytes: as etcd does, with 100 records each."""

from collections.abc import AsyncIterator

import pytest

from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.large_payloads import *  # noqa: F403 - the suite of sizes
from outlast.testing.stores import ids_for_test
from support.engines.memory import MemoryEngine


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(most_writes=100)


@pytest.fixture
async def store(engine: MemoryEngine, clock: FakeClock) -> AsyncIterator[KeyValueStore]:
    keyvalue = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()

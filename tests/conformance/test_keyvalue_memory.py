"""The key-value store keeps the contract, with transactions of whatever size its engine has."""

from collections.abc import AsyncIterator

import pytest

from holdfast.core.ids import Ids
from holdfast.store.keyvalue.store import KeyValueStore
from holdfast.testing.clock import FakeClock
from holdfast.testing.conformance import *  # noqa: F403 - the suite
from holdfast.testing.conformance.broken import *  # noqa: F403 - what recovery repairs
from holdfast.testing.conformance.durable import *  # noqa: F403 - capability DURABLE
from holdfast.testing.conformance.refuted import *  # noqa: F403 - what verify finds
from holdfast.testing.histories import history_machine
from holdfast.testing.keyvalue_wreck import KeyValueWrecker
from holdfast.testing.memory_engine import MemoryEngine

SMALLEST, LARGEST = 10, 128
"""Records per transaction: what DynamoDB Local takes, and what etcd does."""


@pytest.fixture(params=[SMALLEST, LARGEST])
def engine(request: pytest.FixtureRequest) -> MemoryEngine:
    return MemoryEngine(most_writes=request.param)


@pytest.fixture
async def store(engine: MemoryEngine, clock: FakeClock, ids: Ids) -> AsyncIterator[KeyValueStore]:
    keyvalue = KeyValueStore(engine, clock=clock, ids=ids)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()


@pytest.fixture
def wrecker(engine: MemoryEngine, store: KeyValueStore) -> KeyValueWrecker:
    return KeyValueWrecker(engine)


def make(clock: FakeClock, ids: Ids) -> KeyValueStore:
    return KeyValueStore(MemoryEngine(most_writes=SMALLEST), clock=clock, ids=ids)


TestHistories = history_machine(make).TestCase
TestHistories.pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

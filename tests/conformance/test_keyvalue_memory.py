"""The key-value store keeps the contract, with transactions of whatever size its engine has."""

from collections.abc import AsyncIterator

import pytest

from outlast.core.ids import Ids
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import *  # noqa: F403 - the suite
from outlast.testing.conformance.corruption_detection import *  # noqa: F403 - what verify finds
from outlast.testing.conformance.corruption_recovery import *  # noqa: F403 - what recovery repairs
from outlast.testing.conformance.corruption_recovery_records import *  # noqa: F403 - the rest
from outlast.testing.conformance.durable import *  # noqa: F403 - capability DURABLE
from outlast.testing.conformance.histories.machine import history_machine
from support.corruption.keyvalue import KeyValueCorruption
from support.engines.memory import MemoryEngine

SMALLEST = 10
"""Records per transaction: few, so that writes need intents."""


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(most_writes=SMALLEST)


@pytest.fixture
async def store(engine: MemoryEngine, clock: FakeClock, ids: Ids) -> AsyncIterator[KeyValueStore]:
    keyvalue = KeyValueStore(engine, clock=clock, ids=ids)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()


@pytest.fixture
def corrupter(engine: MemoryEngine, store: KeyValueStore) -> KeyValueCorruption:
    return KeyValueCorruption(engine)


def make(clock: FakeClock, ids: Ids) -> KeyValueStore:
    return KeyValueStore(MemoryEngine(most_writes=SMALLEST), clock=clock, ids=ids)


TestHistories = history_machine(make).TestCase
TestHistories.pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

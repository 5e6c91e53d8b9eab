"""The key-value store keeps the contract when its jobs are spread over three shards.

By default with what reads ranges of jobs and numbers events; in `make proof` with the whole suite.
"""

from collections.abc import AsyncIterator

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from outlast.core.ids import Ids
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import sizes
from outlast.testing.conformance.claim import *  # noqa: F403 - merges what is ready
from outlast.testing.conformance.corruption_detection import *  # noqa: F403 - what verify finds
from outlast.testing.conformance.event_stream import *  # noqa: F403 - one order of all events
from outlast.testing.conformance.group_members import *  # noqa: F403 - merges members
from outlast.testing.conformance.histories.machine import history_machine
from outlast.testing.conformance.history import *  # noqa: F403 - pages of jobs
from outlast.testing.conformance.leases import *  # noqa: F403 - merges open runs
from outlast.testing.conformance.move import *  # noqa: F403 - first and last of a line
from outlast.testing.conformance.ordering import *  # noqa: F403 - same
from outlast.testing.conformance.retention import *  # noqa: F403 - merges what ended
from outlast.testing.conformance.transfer_rows import *  # noqa: F403 - pages of rows
from support.corruption.keyvalue import KeyValueCorruption
from support.engines.memory import MemoryEngine

if sizes.SIZES.every_case_on_servers:
    from outlast.testing.conformance import *  # noqa: F403 - the suite
    from outlast.testing.conformance.corruption_recovery import *  # noqa: F403 - its repairs
    from outlast.testing.conformance.corruption_recovery_records import *  # noqa: F403 - the rest
    from outlast.testing.conformance.durable import *  # noqa: F403 - capability DURABLE

SMALLEST = 10
SHARDS = 3
FEWER = 6
"""A store with one shard has the other histories."""


@pytest.fixture
async def store(clock: FakeClock, ids: Ids) -> AsyncIterator[KeyValueStore]:
    keyvalue = _store(clock, ids)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()


@pytest.fixture
def corrupter(store: KeyValueStore) -> KeyValueCorruption:
    return KeyValueCorruption(store.engine)


def _store(clock: FakeClock, ids: Ids) -> KeyValueStore:
    engine = MemoryEngine(most_writes=SMALLEST)
    return KeyValueStore(engine, clock=clock, ids=ids, shards=SHARDS)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_random_histories_are_those_of_the_model() -> None:
    machine = history_machine(_store)
    usual = machine.TestCase.settings
    fewer = settings(usual, max_examples=max(1, usual.max_examples // FEWER))
    run_state_machine_as_test(machine, settings=fewer)

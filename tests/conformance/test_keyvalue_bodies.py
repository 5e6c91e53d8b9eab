"""The key-value store keeps the contract when every text of a job has a body of its own.

The other modules of this folder have short texts, which stay in their records.
"""

from collections.abc import AsyncIterator

import pytest

from outlast.core.ids import Ids
from outlast.store.keyvalue.repositories import bodies
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.add import *  # noqa: F403 - everything that has params
from outlast.testing.conformance.apply import *  # noqa: F403 - errors and results
from outlast.testing.conformance.audit import *  # noqa: F403 - what verify finds
from outlast.testing.conformance.chains import *  # noqa: F403 - successors
from outlast.testing.conformance.claim import *  # noqa: F403 - what a worker gets
from outlast.testing.conformance.corruption_detection import *  # noqa: F403 - what verify finds
from outlast.testing.conformance.corruption_recovery import *  # noqa: F403 - what recovery repairs
from outlast.testing.conformance.corruption_recovery_records import *  # noqa: F403 - the rest
from outlast.testing.conformance.edit import *  # noqa: F403 - params that are replaced
from outlast.testing.conformance.group_retention import *  # noqa: F403 - groups that are pruned
from outlast.testing.conformance.history import *  # noqa: F403 - runs
from outlast.testing.conformance.retention import *  # noqa: F403 - what is pruned
from outlast.testing.conformance.transfer_rows import *  # noqa: F403 - whole rows
from support.corruption.keyvalue import KeyValueCorruption
from support.engines.memory import MemoryEngine

SMALLEST = 10


@pytest.fixture(autouse=True)
def every_text_has_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_INLINE", -1)


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

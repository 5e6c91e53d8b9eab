"""The model store keeps the contract it is the oracle of."""

from collections.abc import AsyncIterator

import pytest

from outlast.core.ids import Ids
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import *  # noqa: F403 - the suite
from outlast.testing.conformance.corruption import ModelCorrupter
from outlast.testing.conformance.corruption_detection import *  # noqa: F403 - what verify finds
from outlast.testing.conformance.corruption_recovery import *  # noqa: F403 - what recovery repairs
from outlast.testing.conformance.corruption_recovery_records import *  # noqa: F403 - the rest
from outlast.testing.conformance.durable import *  # noqa: F403 - it forgets nothing either
from outlast.testing.conformance.histories.machine import history_machine
from outlast.testing.model.store import ModelStore


@pytest.fixture
async def store(clock: FakeClock, ids: Ids) -> AsyncIterator[ModelStore]:
    model = ModelStore(clock, ids)
    await model.open()
    yield model
    await model.close()


@pytest.fixture
def corrupter(store: ModelStore) -> ModelCorrupter:
    return ModelCorrupter(store)


# Compared with itself, the model shows that histories run and that every invariant holds.
TestHistories = pytest.mark.slow(
    pytest.mark.timeout(600)(history_machine(ModelStore).TestCase),
)

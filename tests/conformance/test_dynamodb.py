"""The key-value store keeps the contract on a real DynamoDB Local."""

import secrets
from collections.abc import AsyncIterator

import pytest

from holdfast.core.ids import Ids
from holdfast.store.keyvalue.dynamodb import DynamoDBEngine
from holdfast.store.keyvalue.store import KeyValueStore
from holdfast.testing.clock import FakeClock
from holdfast.testing.conformance import *  # noqa: F403 - the suite
from holdfast.testing.conformance.broken import *  # noqa: F403 - what recovery repairs
from holdfast.testing.conformance.durable import *  # noqa: F403 - capability DURABLE
from holdfast.testing.conformance.refuted import *  # noqa: F403 - what verify finds
from holdfast.testing.conformance.shared import *  # noqa: F403 - capability SHARED
from holdfast.testing.conformance.shared_queues import *  # noqa: F403 - the same, of queues
from holdfast.testing.conformance.shared_records import *  # noqa: F403 - same
from holdfast.testing.histories import history_machine
from holdfast.testing.keyvalue_wreck import KeyValueWrecker

ENDPOINT = "http://127.0.0.1:28000"
BEAT = 0.2
MOST_WRITES = 10
"""Of DynamoDB Local; AWS takes more."""


def _table() -> str:
    return f"test-{secrets.token_hex(6)}"


def _engine() -> DynamoDBEngine:
    return DynamoDBEngine(
        _table(), region="eu-central-1", endpoint=ENDPOINT, beat=BEAT, most_writes=MOST_WRITES
    )


@pytest.fixture
async def store(clock: FakeClock, ids: Ids) -> AsyncIterator[KeyValueStore]:
    keyvalue = KeyValueStore(_engine(), clock=clock, ids=ids)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()


@pytest.fixture
def wrecker(store: KeyValueStore) -> KeyValueWrecker:
    return KeyValueWrecker(store._engine)


@pytest.fixture
def url() -> str:
    options = f"region=eu-central-1&endpoint={ENDPOINT}&max_skew=0"
    return f"dynamodb://{_table()}?{options}&beat={BEAT}&most_writes={MOST_WRITES}"


def make(clock: FakeClock, ids: Ids) -> KeyValueStore:
    return KeyValueStore(_engine(), clock=clock, ids=ids)


TestHistories = history_machine(make).TestCase
TestHistories.pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

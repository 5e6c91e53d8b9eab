"""The key-value store keeps the contract on a real DynamoDB Local."""

import secrets
from collections.abc import AsyncIterator

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

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
from holdfast.testing.conformance.shared_schedules import *  # noqa: F403 - same
from holdfast.testing.histories import history_machine
from holdfast.testing.keyvalue_wreck import KeyValueWrecker
from holdfast.testing.servers.dynamodb import MOST_WRITES
from holdfast.testing.servers.dynamodb import url as url_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BEAT = 0.2
"""Seconds: dead holders of locks are found soon."""

FEWER, FEWEST = (20, 1)
"""Each history takes so many times as long as on a file."""


TABLE = "tests"
"""One for all, each with a prefix of its own: making one takes longer."""


def _prefix() -> str:
    return f"test-{secrets.token_hex(6)}:"


def _engine(endpoint: str) -> DynamoDBEngine:
    return DynamoDBEngine(
        TABLE,
        region="eu-central-1",
        endpoint=endpoint,
        prefix=_prefix(),
        beat=BEAT,
        most_writes=MOST_WRITES,
    )


@pytest.fixture
async def store(dynamodb: str, clock: FakeClock, ids: Ids) -> AsyncIterator[KeyValueStore]:
    keyvalue = KeyValueStore(_engine(dynamodb), clock=clock, ids=ids)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()


@pytest.fixture
def wrecker(store: KeyValueStore) -> KeyValueWrecker:
    return KeyValueWrecker(store.engine)


@pytest.fixture
def url(dynamodb: str) -> str:
    return f"{url_of(dynamodb, TABLE)}&prefix={_prefix()}&max_skew=0&beat={BEAT}"


def test_random_histories_are_those_of_the_model(dynamodb: str) -> None:
    def make(clock: FakeClock, ids: Ids) -> KeyValueStore:
        return KeyValueStore(_engine(dynamodb), clock=clock, ids=ids)

    machine = history_machine(make)
    usual = machine.TestCase.settings
    fewer = settings(usual, max_examples=max(FEWEST, usual.max_examples // FEWER))
    run_state_machine_as_test(machine, settings=fewer)

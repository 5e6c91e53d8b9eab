"""The key-value store keeps the contract on a real DynamoDB Local."""

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from outlast.core.ids import Ids
from outlast.store.keyvalue.engines.dynamodb.engine import THREADS, DynamoDBEngine
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import *  # noqa: F403 - the suite
from outlast.testing.conformance.concurrency import *  # noqa: F403 - capability SHARED
from outlast.testing.conformance.concurrency_documents import *  # noqa: F403 - same
from outlast.testing.conformance.concurrency_queues import *  # noqa: F403 - the same, of queues
from outlast.testing.conformance.concurrency_schedules import *  # noqa: F403 - same
from outlast.testing.conformance.concurrency_windows import *  # noqa: F403 - same
from outlast.testing.conformance.corruption_detection import *  # noqa: F403 - what verify finds
from outlast.testing.conformance.corruption_recovery import *  # noqa: F403 - what recovery repairs
from outlast.testing.conformance.corruption_recovery_records import *  # noqa: F403 - the rest
from outlast.testing.conformance.durable import *  # noqa: F403 - capability DURABLE
from outlast.testing.conformance.histories.machine import history_machine
from outlast.testing.servers.dynamodb import url as url_of
from support.corruption.keyvalue import KeyValueCorruption

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BEAT = 1.0
"""Seconds: dead holders of locks are found soon, and the living are heard on a busy machine."""

STATUS_DELAY = 0.1
"""Seconds that each test which closes its store waits."""

FEWER = 20
"""Each history takes so many times as long as on a file."""

SHARED = 30
"""Tests that share a table, each with a prefix of its own: making one takes time, and so does
reading through a large one."""

_TESTS = count()


def _table() -> str:
    return f"tests-{os.getpid()}-{next(_TESTS) // SHARED}"


def _prefix() -> str:
    return f"test-{secrets.token_hex(6)}:"


@pytest.fixture(scope="module")
def threads() -> Iterator[ThreadPoolExecutor]:
    """For all tests: to start some takes longer than a test."""
    with ThreadPoolExecutor(THREADS) as pool:
        yield pool


def _engine(endpoint: str, threads: ThreadPoolExecutor | None = None) -> DynamoDBEngine:
    return DynamoDBEngine(
        _table(),
        region="eu-central-1",
        endpoint=endpoint,
        prefix=_prefix(),
        beat=BEAT,
        status_delay=STATUS_DELAY,
        threads=threads,
    )


@pytest.fixture
async def store(
    dynamodb: str, threads: ThreadPoolExecutor, clock: FakeClock, ids: Ids
) -> AsyncIterator[KeyValueStore]:
    keyvalue = KeyValueStore(_engine(dynamodb, threads), clock=clock, ids=ids)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()


@pytest.fixture
def corrupter(store: KeyValueStore) -> KeyValueCorruption:
    return KeyValueCorruption(store.engine)


@pytest.fixture
def url(dynamodb: str) -> str:
    return f"{url_of(dynamodb, _table())}&prefix={_prefix()}&max_skew=0&beat={BEAT}"


def test_random_histories_are_those_of_the_model(dynamodb: str) -> None:
    def make(clock: FakeClock, ids: Ids) -> KeyValueStore:
        return KeyValueStore(_engine(dynamodb), clock=clock, ids=ids)

    machine = history_machine(make, every=10)
    usual = machine.TestCase.settings
    fewer = settings(usual, max_examples=usual.max_examples // FEWER)
    run_state_machine_as_test(machine, settings=fewer)

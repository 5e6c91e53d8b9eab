"""The key-value store keeps the contract on a real etcd cluster of three."""

import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from outlast.core.ids import Ids
from outlast.store.keyvalue.engines.etcd.client import Cluster
from outlast.store.keyvalue.engines.etcd.engine import EtcdEngine
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
from support.corruption.keyvalue import KeyValueCorruption

if TYPE_CHECKING:
    from outlast.testing.servers.etcd import EtcdCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BEAT = 1.0
"""Seconds: dead holders of locks are found soon, and the living are heard on a busy machine."""

FEWER = 10
"""Each history takes so many times as long as on a file."""


def _prefix() -> str:
    return f"test-{secrets.token_hex(6)}"


def _engine(etcd: "EtcdCluster") -> EtcdEngine:
    return EtcdEngine(Cluster(hosts=etcd.hosts), prefix=_prefix(), beat=BEAT)


@pytest.fixture
async def store(etcd: "EtcdCluster", clock: FakeClock, ids: Ids) -> AsyncIterator[KeyValueStore]:
    keyvalue = KeyValueStore(_engine(etcd), clock=clock, ids=ids)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()


@pytest.fixture
def corrupter(store: KeyValueStore) -> KeyValueCorruption:
    return KeyValueCorruption(store.engine)


@pytest.fixture
def url(etcd: "EtcdCluster") -> str:
    return f"{etcd.url(_prefix())}?max_skew=0&beat={BEAT}"


def test_random_histories_are_those_of_the_model(etcd: "EtcdCluster") -> None:
    def make(clock: FakeClock, ids: Ids) -> KeyValueStore:
        return KeyValueStore(_engine(etcd), clock=clock, ids=ids)

    machine = history_machine(make, every=10)
    usual = machine.TestCase.settings
    fewer = settings(usual, max_examples=usual.max_examples // FEWER)
    run_state_machine_as_test(machine, settings=fewer)

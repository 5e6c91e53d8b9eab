"""The key-value store keeps the contract on a real etcd cluster of three."""

import secrets
from collections.abc import AsyncIterator

import pytest

from holdfast.core.ids import Ids
from holdfast.store.keyvalue.etcd import EtcdEngine
from holdfast.store.keyvalue.etcd_wire import Cluster
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

HOSTS = ("127.0.0.1:21379", "127.0.0.1:22379", "127.0.0.1:23379")
BEAT = 0.2


def _prefix() -> str:
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
async def store(clock: FakeClock, ids: Ids) -> AsyncIterator[KeyValueStore]:
    engine = EtcdEngine(Cluster(hosts=HOSTS), prefix=_prefix(), beat=BEAT)
    keyvalue = KeyValueStore(engine, clock=clock, ids=ids)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()


@pytest.fixture
def wrecker(store: KeyValueStore) -> KeyValueWrecker:
    return KeyValueWrecker(store._engine)


@pytest.fixture
def url() -> str:
    return f"etcd://{','.join(HOSTS)}/{_prefix()}?max_skew=0&beat={BEAT}"


def make(clock: FakeClock, ids: Ids) -> KeyValueStore:
    engine = EtcdEngine(Cluster(hosts=HOSTS), prefix=_prefix(), beat=BEAT)
    return KeyValueStore(engine, clock=clock, ids=ids)


TestHistories = history_machine(make).TestCase
TestHistories.pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

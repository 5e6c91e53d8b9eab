"""An app over each store, by a clock that moves only when told, and its trigger."""

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from outlast import Outlast
from outlast.core.ids import Ids
from outlast.scheduler.trigger import Trigger
from outlast.store.contract import Store
from outlast.store.keyvalue.engine import Engine
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.sizes import DEFAULT, VARIABLE
from outlast.testing.model.store import ModelStore
from support.engines.memory import MemoryEngine
from support.postgres.clock import DatabaseClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids(clock: FakeClock) -> Ids:
    return Ids(clock.now, Random(7).getrandbits)


STORES = ("model", "sqlite", "postgres", "keyvalue")
SLOW = ("etcd", "dynamodb")
"""The servers of the key-value store: at full size; else its engine is the smallest."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store" in metafunc.fixturenames:
        is_full = os.environ.get(VARIABLE, DEFAULT) == "full"
        metafunc.parametrize("store", STORES + SLOW if is_full else STORES, indirect=True)


@pytest.fixture
async def store(
    request: pytest.FixtureRequest, clock: FakeClock, ids: Ids, tmp_path: Path
) -> AsyncIterator[Store]:
    made: Store = ModelStore(clock, ids)
    if request.param == "sqlite":
        made = SqliteStore(tmp_path / "jobs.db", clock=clock, ids=ids)
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        made = PostgresStore(url, clock=DatabaseClock(clock), ids=ids)
    if request.param in {"keyvalue", *SLOW}:
        made = KeyValueStore(_engine(request), clock=clock, ids=ids)
    await made.open()
    yield made
    await made.close()


def _engine(request: pytest.FixtureRequest) -> Engine:
    """Where no test has been, in memory or on the session's server."""
    if request.param == "keyvalue":
        return MemoryEngine(most_writes=10)
    from outlast.store.keyvalue.engines.dynamodb.engine import DynamoDBEngine  # noqa: PLC0415 - only who asks
    from outlast.store.keyvalue.engines.etcd.client import Cluster  # noqa: PLC0415 - same
    from outlast.store.keyvalue.engines.etcd.engine import EtcdEngine  # noqa: PLC0415 - same

    server, prefix = request.getfixturevalue(request.param), f"scheduler-{secrets.token_hex(6)}"
    if request.param == "etcd":
        return EtcdEngine(Cluster(hosts=server.hosts), prefix=prefix)
    place = {"region": "eu-central-1", "endpoint": server, "prefix": f"{prefix}:"}
    return DynamoDBEngine("tests", **place)


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Outlast]:
    async with Outlast(store, poll="5ms", tick="5ms") as outlast:
        outlast.job(name="report")(_report)
        outlast.job(name="brief", delivery="once")(_brief)
        outlast.job(name="greet")(_greet)
        yield outlast


def _report() -> None: ...
def _brief() -> None: ...
def _greet(name: str, times: int = 1) -> str:
    return name * times


@pytest.fixture
def trigger(store: Store, ids: Ids) -> Trigger:
    return Trigger(store, ids.job)

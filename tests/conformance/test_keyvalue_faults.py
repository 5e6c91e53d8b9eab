"""The key-value store keeps the contract where transactions fail and calls are repeated.

A few modules of the suite on an engine in memory; at full size all of it, on the servers as well.
"""

import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from outlast.core.ids import Ids
from outlast.store.keyvalue.engine import Engine
from outlast.store.open import open_store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import sizes
from outlast.testing.conformance.histories.machine import history_machine
from outlast.testing.servers import dynamodb as local
from support.engines.memory import MemoryEngine
from support.engines.repeating import RepeatingStore

if sizes.SIZES.every_case_on_servers:
    from outlast.testing.conformance import *  # noqa: F403 - the suite
else:
    from outlast.testing.conformance.batch_isolation import *  # noqa: F403 - calls of several
    from outlast.testing.conformance.claim import *  # noqa: F403 - what a claim keeps
    from outlast.testing.conformance.fencing import *  # noqa: F403 - repeated ends

if TYPE_CHECKING:
    from outlast.testing.servers.etcd import EtcdCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ENGINES = ["memory", "etcd", "dynamodb"] if sizes.SIZES.every_case_on_servers else ["memory"]
SEED = 18
SHARE = 0.2
SMALLEST = 10
FEWER = 10
"""One history, of half as many steps, for so many of the engine without faults."""


def _memory_engine() -> MemoryEngine:
    return MemoryEngine(most_writes=SMALLEST)


def _etcd_engine(etcd: "EtcdCluster") -> Engine:
    return open_store(etcd.url(f"faults-{secrets.token_hex(6)}")).engine


def _dynamodb_engine(endpoint: str) -> Engine:
    return open_store(f"{local.url(endpoint, 'faults')}&prefix=f-{secrets.token_hex(6)}:").engine


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "memory":
        return _memory_engine()
    make = _etcd_engine if request.param == "etcd" else _dynamodb_engine
    return make(request.getfixturevalue(request.param))


@pytest.fixture
async def store(engine: Engine, clock: FakeClock, ids: Ids) -> AsyncIterator[RepeatingStore]:
    repeating = RepeatingStore(engine, seed=SEED, share=SHARE, clock=clock, ids=ids)
    await repeating.open()
    yield repeating
    await repeating.close()


@pytest.mark.parametrize("kind", ENGINES)
def test_random_histories_are_those_of_the_model(kind: str, request: pytest.FixtureRequest) -> None:
    server = None if kind == "memory" else request.getfixturevalue(kind)
    stores: list[RepeatingStore] = []
    makers = {"memory": _memory_engine, "etcd": _etcd_engine, "dynamodb": _dynamodb_engine}

    def make(clock: FakeClock, ids: Ids) -> RepeatingStore:
        engine = makers[kind]() if server is None else makers[kind](server)
        given = {"clock": clock, "ids": ids}
        stores.append(RepeatingStore(engine, seed=SEED, share=SHARE, is_numbered=True, **given))
        return stores[-1]

    machine = history_machine(make, every=10)
    usual = machine.TestCase.settings
    fewer = settings(
        usual,
        max_examples=max(3, usual.max_examples // FEWER),
        stateful_step_count=usual.stateful_step_count // 2,
    )
    run_state_machine_as_test(machine, settings=fewer)

    assert any(store.faulty.failed for store in stores)

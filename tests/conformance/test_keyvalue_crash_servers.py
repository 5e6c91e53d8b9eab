"""Killed between any two transactions on a real server, the store is made whole by whoever is next.

Every scene dies at every transaction in memory (see `test_keyvalue_crash`); here some do, on the
servers that the engines are for.
"""

import os
import secrets
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.store.keyvalue import intents
from outlast.store.keyvalue.engine import Engine
from outlast.store.keyvalue.engines.dynamodb.engine import DynamoDBEngine
from outlast.store.keyvalue.engines.etcd.client import Cluster
from outlast.store.keyvalue.engines.etcd.engine import EtcdEngine
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.conformance.sizes import DEFAULT, VARIABLE
from outlast.verify import verify
from support.crash.runner import ACT_IDS, clocked
from support.crash.scenarios import SCENARIOS
from support.crash.scenarios_groups import GROUP_SCENARIOS
from support.crash.scenarios_schedules import SCHEDULES
from support.crash.world import World
from support.engines.crashing import CrashingEngine, EngineCrashed

if TYPE_CHECKING:
    from outlast.testing.servers.etcd import EtcdCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCENES = SCENARIOS | GROUP_SCENARIOS | SCHEDULES
UNSOUND = {"unblock", "edit_blocked", "move_blocked"}
"""In these a job is blocked without a group."""

FEW = ("add_with_everything", "apply_mixed", "group_members_succeed", "schedule_fire")
Make = Callable[[], Engine]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_full = os.environ.get(VARIABLE, DEFAULT) == "full"
    metafunc.parametrize("name", sorted(SCENES.keys() - UNSOUND) if is_full else FEW)


async def _play(engine: Engine, name: str, dies_at: int | None) -> int:
    """Play a scene until its process dies; how many transactions its act sent."""
    clock, ids = clocked()
    mortal = CrashingEngine(engine)
    store = KeyValueStore(mortal, clock=clock, ids=ids)
    await store.open()
    needs = await SCENES[name].prepare(World(store, Path(), clock, count(1)))
    mortal.armed(dies_at)
    try:
        await SCENES[name].act(World(store, Path(), clock, count(ACT_IDS)), needs)
    except EngineCrashed:
        assert dies_at is not None
    store._locks.stop()  # its threads died, too
    await engine.close()
    return mortal.sent


async def _die_everywhere(make: Make, name: str) -> None:
    steps = await _play(make(), name, None)
    for number in range(steps):
        engine = make()
        await _play(engine, name, number)

        clock, ids = clocked()
        store = KeyValueStore(engine, clock=clock, ids=ids)
        await store.open()
        assert (await verify(store)).violations == (), f"died before {number} of {steps}"
        assert await intents.pending(engine) == []
        await store.close()


async def test_killed_on_etcd_it_is_made_whole(etcd: "EtcdCluster", name: str) -> None:
    def make() -> Engine:
        return EtcdEngine(Cluster(hosts=etcd.hosts), prefix=f"crash-{secrets.token_hex(6)}")

    await _die_everywhere(make, name)


async def test_killed_on_dynamodb_it_is_made_whole(dynamodb: str, name: str) -> None:
    def make() -> Engine:
        return DynamoDBEngine(
            "tests",
            region="eu-central-1",
            endpoint=dynamodb,
            prefix=f"crash-{secrets.token_hex(6)}:",
            most_writes=10,  # so that writes need intents, and a kill may come between their steps
        )

    await _die_everywhere(make, name)

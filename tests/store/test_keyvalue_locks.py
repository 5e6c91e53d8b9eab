"""Locks of the key-value store: shared ones, the dead among who share them, deserted workers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.core.run import Holder
from holdfast.core.worker import WorkerInfo
from holdfast.store.keyvalue import layout
from holdfast.store.keyvalue.port import Key, Write
from holdfast.store.keyvalue.store import KeyValueStore
from holdfast.testing.clock import FakeClock
from holdfast.testing.conformance.make import HOUR, LEASE, TYPE, put, settle, take
from holdfast.testing.conformance.make import SUCCEEDED as DONE
from holdfast.testing.memory_engine import MemoryEngine
from holdfast.testing.stores import ids_for_test

TREE = "tree.dead"
DEAD = Holder(instance_id="host-1", boot_id=TREE)


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


async def _opened(engine: MemoryEngine) -> KeyValueStore:
    clock = FakeClock()
    store = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))
    await store.open()
    return store


@pytest.fixture
async def store(engine: MemoryEngine) -> AsyncIterator[KeyValueStore]:
    opened = await _opened(engine)
    yield opened
    await opened.close()


async def _die_with(engine: MemoryEngine, name: str, *, shared: bool = True) -> None:
    """Leave what a killed process leaves."""
    left = Write(Key(layout.LOCK, name), {"is_shared": shared, "beats": {"gone.1": 7}})
    assert await engine.transact({}, [left])


async def test_lock_that_only_the_dead_share_is_free(
    engine: MemoryEngine, store: KeyValueStore
) -> None:
    await _die_with(engine, TREE)

    alone = await store.hold(TREE)

    assert alone is not None
    assert not alone.is_lost


async def test_lock_that_one_living_shares_with_the_dead_is_taken(
    engine: MemoryEngine, store: KeyValueStore
) -> None:
    await _die_with(engine, TREE)
    other = await _opened(engine)
    living = await other.hold(TREE, shared=True)

    refused = await store.hold(TREE)
    vacant = await store.vacant([TREE])

    assert living is not None
    assert (refused, vacant) == (None, frozenset())
    await other.close()


async def test_all_who_share_one_lock_let_go_of_it_while_the_others_beat(
    engine: MemoryEngine, store: KeyValueStore
) -> None:
    stores = [await _opened(engine) for _ in range(5)]
    holds = [await each.hold(TREE, shared=True) for each in stores]

    await asyncio.gather(*(hold.release() for hold in holds if hold is not None))

    assert None not in holds
    assert await engine.get([Key(layout.LOCK, TREE)]) == [None]
    for each in stores:
        await each.close()


async def _with_a_dead_worker(engine: MemoryEngine, store: KeyValueStore) -> None:
    info = WorkerInfo(
        instance_id=DEAD.instance_id,
        boot_id=TREE,
        host="here",
        pid=1,
        queues=("default",),
        types=(TYPE,),
        concurrency=1,
    )
    await store.enlist(info)
    await put(store)
    await store.claim(DEAD, queue="default", types=[TYPE], limit=1, lease=LEASE)
    await _die_with(engine, TREE)


async def _until_deserted(store: KeyValueStore) -> int:
    """How many looks it takes."""
    looks = 1
    async with asyncio.timeout(30):
        while not (await store.chores(abandoned=HOUR)).deserted:
            looks += 1
    return looks


async def test_worker_of_which_nobody_is_left_is_a_chore_after_a_while_and_none_when_closed(
    engine: MemoryEngine, store: KeyValueStore
) -> None:
    await _with_a_dead_worker(engine, store)

    looks = await _until_deserted(store)
    [job] = await store.held(besides="", limit=10)
    await settle(store, job, DONE)

    assert looks > 1, "one look proves nothing"
    assert not (await store.chores(abandoned=HOUR)).deserted
    await put(store)
    assert (await take(store)).token == 1

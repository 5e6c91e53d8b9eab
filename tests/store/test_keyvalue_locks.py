"""Locks of the key-value store: whose holders are dead, shared ones, deserted workers."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from threading import Semaphore
from unittest.mock import AsyncMock

import pytest

from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerInfo
from outlast.errors import StoreClosed, StoreUnavailable
from outlast.process_identity import UNKNOWN_SCOPE, process_scope
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import LEASE as NAME
from outlast.store.keyvalue.engine import Conditions, Keep, Key, Write
from outlast.store.keyvalue.liveness import Liveness
from outlast.store.keyvalue.locks import KeyValueLocks, Lock
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import HOUR, LEASE, TYPE, put, settle, take
from outlast.testing.conformance.factories import SUCCEEDED as DONE
from outlast.testing.stores import ids_for_test
from support.dead_process import dead_process_name, stopped_process_name
from support.engines.memory import MemoryEngine

from .sqlite_helpers import PATIENCE

TREE = dead_process_name("tree.")
DEAD = LeaseHolder(instance_id="host-1", boot_id=TREE)


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


def stands_still() -> float:
    """A moment that lasts: no holder is watched for long enough to count as dead."""
    return 0.0


class Counted:
    """Counts what happens on some thread; waits for more of it."""

    def __init__(self) -> None:
        self._happened = Semaphore(0)

    def __call__(self) -> None:
        self._happened.release()

    def wait(self, times: int) -> None:
        for _ in range(times):
            assert self._happened.acquire(timeout=PATIENCE), "it has stopped"


def beats_of(engine: MemoryEngine) -> Counted:
    """Every sign of life that is written there from now on."""
    beats = Counted()

    def before(writes: Sequence[Write]) -> None:
        if any(write.key.part == key_layout.LIVENESS and write.value for write in writes):
            beats()

    engine.before = before
    return beats


async def _opened(
    engine: MemoryEngine, watched: Callable[[], float] = time.monotonic
) -> KeyValueStore:
    clock = FakeClock()
    store = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock), watched=watched)
    await store.open()
    return store


@pytest.fixture
async def store(engine: MemoryEngine) -> AsyncIterator[KeyValueStore]:
    opened = await _opened(engine)
    yield opened
    await opened.close()


async def _die_with(engine: MemoryEngine, name: str, *, shared: bool = True) -> None:
    """Leave what a killed process leaves."""
    lock = Write(Key(key_layout.LOCK, name), {"is_shared": shared, "holders": ["gone.1"]})
    life = Write(Key(key_layout.LIVENESS, "gone"), {"beats": 7})
    assert await engine.transact({}, [lock, life])


async def _left_by(engine: MemoryEngine, owner: str) -> None:
    """Leave a lock and a sign of life, as a process leaves them that was killed."""
    lock = Write(Key(key_layout.LOCK, "host-1"), {"is_shared": False, "holders": [f"{owner}.1"]})
    life = Write(Key(key_layout.LIVENESS, owner), {"beats": 7})
    assert await engine.transact({}, [lock, life])


async def _until_lost(lock: Lock) -> None:
    async with asyncio.timeout(PATIENCE):
        while not lock.is_lost:  # noqa: ASYNC110 - a thread's
            await asyncio.sleep(0.01)


async def test_lock_of_a_dead_holder_is_taken_over_and_its_liveness_record_deleted(
    engine: MemoryEngine, store: KeyValueStore
) -> None:
    await _die_with(engine, "host-1", shared=False)

    vacant = await store.free_locks(["host-1"])
    lock = await store.acquire_lock("host-1")

    assert vacant == {"host-1"}
    assert lock is not None
    assert await engine.get([Key(key_layout.LIVENESS, "gone")]) == [None]


@pytest.mark.parametrize("has_leases", [False, True])
async def test_lock_of_a_process_that_the_kernel_proves_dead_is_free_without_watching_it(
    engine: MemoryEngine, *, has_leases: bool
) -> None:
    engine.leases = _Leases(engine) if has_leases else None
    store, owner = await _opened(engine, stands_still), dead_process_name("store.")
    await _left_by(engine, owner)

    vacant = await store.free_locks(["host-1"])
    lock = await store.acquire_lock_at_once("host-1")

    assert vacant == {"host-1"}
    assert lock is not None
    assert await engine.get([Key(key_layout.LIVENESS, owner)]) == [None]
    await store.close()


async def test_lock_of_a_frozen_process_is_not_free(engine: MemoryEngine) -> None:
    store = await _opened(engine, stands_still)
    with stopped_process_name("store.") as owner:
        await _left_by(engine, owner)

        assert await store.acquire_lock_at_once("host-1") is None
    await store.close()


@pytest.mark.parametrize("scope", [UNKNOWN_SCOPE, "0123456789abcdef"])
async def test_lock_of_a_process_elsewhere_is_free_only_after_watching_it(
    engine: MemoryEngine, store: KeyValueStore, scope: str
) -> None:
    await _left_by(engine, dead_process_name("store.").replace(process_scope(), scope))

    at_once = await store.acquire_lock_at_once("host-1")
    lock = await store.acquire_lock("host-1")

    assert at_once is None
    assert lock is not None


def test_forked_child_acquires_no_lock_of_a_store_that_its_parent_opened(
    engine: MemoryEngine,
) -> None:
    """The lock would name the parent, and count as free when that has ended."""
    locks, exit_code = KeyValueLocks(engine, "store.parent"), 1
    child = os.fork()
    if child == 0:
        try:
            locks.acquire_lock("host-1").send(None)
        except StoreClosed:
            exit_code = 0
        finally:
            os._exit(exit_code)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_lock_of_another_store_of_this_process_is_not_free(engine: MemoryEngine) -> None:
    first, second = await _opened(engine), await _opened(engine, stands_still)

    held = await first.acquire_lock("host-1")

    assert held is not None
    assert await second.acquire_lock_at_once("host-1") is None
    await asyncio.gather(first.close(), second.close())


async def test_lock_outlives_a_blocked_event_loop() -> None:
    engine = MemoryEngine()
    first, second = await _opened(engine), await _opened(engine, stands_still)
    held = await first.acquire_lock("host-1")

    beats_of(engine).wait(10)  # on a thread of its own, while this one blocks the loop
    taken = await second.acquire_lock("host-1")

    assert held is not None
    assert (taken, held.is_lost) == (None, False)
    await asyncio.gather(first.close(), second.close())


async def test_lock_that_was_waited_for_while_another_was_held_is_not_lost(
    engine: MemoryEngine, store: KeyValueStore
) -> None:
    await _die_with(engine, "host-1", shared=False)
    assert await store.acquire_lock("scope") is not None  # from now on it beats

    lock = await store.acquire_lock("host-1")  # which takes five beats

    assert lock is not None
    await asyncio.to_thread(beats_of(engine).wait, 4)  # at each but the last it has looked
    assert not lock.is_lost
    other = await _opened(engine, stands_still)
    assert await other.acquire_lock("host-1") is None
    await other.close()


async def test_holder_that_counted_as_dead_has_lost_its_lock(
    engine: MemoryEngine, store: KeyValueStore
) -> None:
    lock = await store.acquire_lock("host-1")
    there = {"is_shared": False, "holders": ["another.1"]}
    await engine.transact({}, [Write(Key(key_layout.LOCK, "host-1"), there)])

    assert lock is not None
    await _until_lost(lock)
    await lock.release()

    [kept] = await engine.get([Key(key_layout.LOCK, "host-1")])
    assert kept is not None
    assert kept.value == there


class _Slow(MemoryEngine):
    """Whose caller is gone before the answer to some write is there."""

    cut = False

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        is_done = await super().transact(conditions, writes)
        if self.cut and writes[0].key.part == key_layout.LOCK:
            self.cut = False
            raise asyncio.CancelledError
        return is_done


@pytest.mark.parametrize("what", ["taken", "released"])
async def test_lock_of_a_cancelled_call_is_free_again(what: str) -> None:
    engine = _Slow()
    store, other = await _opened(engine), await _opened(engine)
    lock = await store.acquire_lock("host-1") if what == "released" else None

    engine.cut = True
    with pytest.raises(asyncio.CancelledError):
        await (lock.release() if lock is not None else store.acquire_lock("host-1"))
    async with asyncio.timeout(PATIENCE):
        while (again := await other.acquire_lock("host-1")) is None:
            pass

    assert again is not None
    await store.close()
    assert await other.free_locks(["host-1"]) == frozenset()
    await other.close()


class _Leases:
    """Leases that expire when the test says so; each further read finds them renewed."""

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._seconds = count(1)
        self.kept: set[Key] = set()
        self.looked = Counted()

    async def put(self, record: Write, *, span: float) -> Keep:
        self.kept.add(record.key)
        await self._engine.transact({}, [Write(record.key, {NAME: record.key.sort})])

        async def keep() -> bool:
            self.looked()
            return record.key in self.kept

        return keep

    async def left(self, lease: str) -> int:
        return next(self._seconds)

    async def expire(self) -> None:
        over = [Write(key, None) for key in self.kept]
        self.kept.clear()
        await self._engine.transact({}, over)


@pytest.fixture
def leases(engine: MemoryEngine) -> _Leases:
    engine.leases = made = _Leases(engine)
    return made


async def test_lock_is_free_the_moment_its_holders_lease_is_over(
    engine: MemoryEngine, leases: _Leases, store: KeyValueStore
) -> None:
    other = await _opened(engine)
    lock = await store.acquire_lock("host-1")

    refused = await other.acquire_lock("host-1")
    await leases.expire()
    taken = await other.acquire_lock("host-1")

    assert lock is not None
    assert refused is None
    assert taken is not None
    await _until_lost(lock)
    await other.close()


async def test_expired_lease_that_is_renewed_in_time_keeps_its_lock(
    engine: MemoryEngine, leases: _Leases, store: KeyValueStore
) -> None:
    other = await _opened(engine)
    lock = await store.acquire_lock("host-1")

    await leases.expire()
    async with asyncio.timeout(PATIENCE):
        while not leases.kept:  # noqa: ASYNC110 - a thread's
            await asyncio.sleep(0.01)

    assert lock is not None
    assert await other.acquire_lock("host-1") is None
    assert not lock.is_lost
    await other.close()


async def test_holder_with_a_lease_writes_nothing_while_it_lives(
    engine: MemoryEngine, leases: _Leases, store: KeyValueStore
) -> None:
    assert await store.acquire_lock("host-1") is not None
    written: list[Write] = []
    engine.before = written.extend

    await asyncio.to_thread(leases.looked.wait, 6)

    assert written == []
    await store.close()
    assert not [
        key for key in engine.everything() if key.part in {key_layout.LOCK, key_layout.LIVENESS}
    ]


async def test_renewal_of_a_lease_is_seen_only_by_two_recent_reads(
    engine: MemoryEngine, leases: _Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(leases, "left", AsyncMock(return_value=3))
    await leases.put(Write(Key(key_layout.LIVENESS, "other"), {}), span=3)
    lives, seen = Liveness(engine, "own", lambda: now), []

    for moment in (0.0, 0.9, 1.1, 100.0, 101.1):
        now = moment
        seen.append((await lives.check(["other"], closely=True))["other"])

    assert seen == [None, None, False, None, False]


class _Away(MemoryEngine):
    """Engine that is unavailable for writes until the test ends that."""

    away = False

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        if self.away:
            raise StoreUnavailable("no reply")
        return await super().transact(conditions, writes)


async def test_failed_first_heartbeat_raises_and_may_be_repeated() -> None:
    engine = _Away()
    store = await _opened(engine)

    engine.away = True
    with pytest.raises(StoreUnavailable):
        await store.acquire_lock("host-1")
    engine.away = False

    assert await store.acquire_lock("host-1") is not None
    await store.close()


async def test_lock_shared_only_by_dead_holders_is_free(
    engine: MemoryEngine, store: KeyValueStore
) -> None:
    await _die_with(engine, TREE)

    alone = await store.acquire_lock(TREE)

    assert alone is not None
    assert not alone.is_lost


async def test_lock_with_one_live_holder_among_dead_ones_is_held(
    engine: MemoryEngine,
) -> None:
    store, other = await _opened(engine, stands_still), await _opened(engine)
    await _die_with(engine, TREE)
    living = await other.acquire_lock(TREE, shared=True)

    refused = await store.acquire_lock(TREE)
    vacant = await store.free_locks([TREE])

    assert living is not None
    assert (refused, vacant) == (None, frozenset())
    await asyncio.gather(store.close(), other.close())


async def test_all_holders_release_a_shared_lock_during_heartbeats(
    engine: MemoryEngine, store: KeyValueStore
) -> None:
    stores = [await _opened(engine) for _ in range(5)]
    holds = [await each.acquire_lock(TREE, shared=True) for each in stores]

    await asyncio.gather(*(hold.release() for hold in holds if hold is not None))

    assert None not in holds
    assert await engine.get([Key(key_layout.LOCK, TREE)]) == [None]
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
    await store.register_worker(info)
    await put(store)
    await store.claim(DEAD, queue="default", types=[TYPE], limit=1, lease=LEASE)
    await _die_with(engine, TREE)


async def _until_deserted(store: KeyValueStore) -> int:
    """How many looks it takes."""
    looks = 1
    async with asyncio.timeout(PATIENCE):
        while not (await store.maintenance_due(abandoned=HOUR)).dead_workers:
            looks += 1
    return looks


async def test_dead_worker_is_due_for_maintenance_until_its_runs_are_closed(
    engine: MemoryEngine, store: KeyValueStore
) -> None:
    await _with_a_dead_worker(engine, store)

    looks = await _until_deserted(store)
    [job] = await store.running_under_other_boots(besides="", limit=10)
    await settle(store, job, DONE)

    assert looks > 1, "one look proves nothing"
    assert not (await store.maintenance_due(abandoned=HOUR)).dead_workers
    await put(store)
    assert (await take(store)).token == 1

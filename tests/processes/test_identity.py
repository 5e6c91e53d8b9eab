"""A living worker keeps its name while the connection of its lock is broken."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from outlast.core.run import LeaseHolder
from outlast.core.worker import SUPERVISED_BOOT_PREFIX, WorkerInfo
from outlast.process_identity import process_name
from outlast.store.keyvalue.engine import Key, Write
from outlast.store.keyvalue.key_layout import LIVENESS, LOCK
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.stores import ids_for_test
from outlast.worker.supervisor import identity
from outlast.worker.supervisor.identity import identify, join_identity, remove_boot_lock
from outlast.worker.supervisor.options import WorkerOptions
from support.dead_process import dead_process_name
from support.engines.memory import MemoryEngine

HOST = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:100]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(clock: FakeClock) -> AsyncIterator[KeyValueStore]:
    opened = KeyValueStore(MemoryEngine(), clock=clock, ids=ids_for_test(clock))
    await opened.open()
    yield opened
    await opened.close()


async def register(store: KeyValueStore, boot_id: str) -> None:
    """Register the first worker of this host, which has sent its heartbeat; its lock is free."""
    info = WorkerInfo(
        instance_id=f"{HOST}-1",
        boot_id=boot_id,
        host=HOST,
        pid=1,
        queues=("default",),
        types=(),
        concurrency=1,
    )
    await store.register_worker(info)
    assert await store.heartbeat(info.holder, span=MINUTE)


async def named(store: KeyValueStore) -> str:
    options = WorkerOptions(app="app")
    identity = await identify(store, options, process_name(SUPERVISED_BOOT_PREFIX, "new"))
    await identity.release()
    return identity.holder.instance_id


async def test_a_worker_that_may_be_alive_keeps_its_name_though_its_lock_is_free(
    store: KeyValueStore, clock: FakeClock
) -> None:
    await register(store, f"{SUPERVISED_BOOT_PREFIX}0123456789abcdef.1.1.on-another-machine")

    while_it_may_live = await named(store)
    clock.advance(2 * MINUTE)

    assert while_it_may_live == f"{HOST}-2"
    assert await named(store) == f"{HOST}-1"


async def test_a_frozen_worker_of_this_machine_keeps_its_name_though_its_heartbeat_has_expired(
    store: KeyValueStore, clock: FakeClock
) -> None:
    await register(store, process_name(SUPERVISED_BOOT_PREFIX, "1"))
    clock.advance(2 * MINUTE)

    assert await named(store) == f"{HOST}-2"


async def test_stopping_worker_does_not_wait_until_its_killed_child_counts_as_dead(
    clock: FakeClock,
) -> None:
    engine = MemoryEngine()
    engine.limits = replace(engine.limits, beat=600.0)
    supervisor, child = [KeyValueStore(engine, clock=clock) for _ in range(2)]
    holder = LeaseHolder(instance_id=f"{HOST}-1", boot_id="tree.1")
    for each in (supervisor, child):
        await each.open()
    assert await join_identity(child, holder), "it is killed: it never releases its lock"

    async with asyncio.timeout(120):
        await remove_boot_lock(supervisor, holder)

    await child.close()
    await supervisor.close()


async def _left_on_another_machine(store: KeyValueStore, name: str) -> None:
    """Leave the lock of a worker that was killed there."""
    owner = "store.0123456789abcdef.1.1.gone"
    lock = Write(Key(LOCK, name), {"is_shared": False, "holders": [f"{owner}.1"]})
    assert await store.engine.transact({}, [lock, Write(Key(LIVENESS, owner), {"beats": 7})])


async def test_generated_name_does_not_wait_for_a_dead_worker_of_another_machine(
    clock: FakeClock,
) -> None:
    watched = 0.0  # this clock stands still: no holder would ever count as dead
    store = KeyValueStore(MemoryEngine(), clock=clock, watched=lambda: watched)
    await store.open()
    await _left_on_another_machine(store, f"worker.{HOST}-1")

    async with asyncio.timeout(120):
        assert await named(store) == f"{HOST}-2"
    await store.close()


@pytest.mark.parametrize(
    ("topology", "lock", "what"),
    [("pool", "worker.one", "the name 'one'"), ("single", "scope.one", "the scope 'one'")],
)
async def test_given_name_waits_and_one_line_says_for_what_and_how_long(
    store: KeyValueStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    topology: str,
    lock: str,
    what: str,
) -> None:
    monkeypatch.setattr(identity, "SILENT_WAIT_S", 0.0)
    await _left_on_another_machine(store, lock)

    options = WorkerOptions(app="app", instance_id="one", topology=topology, scope="one")
    got = await identify(store, options, process_name(SUPERVISED_BOOT_PREFIX, "new"))
    await got.release()

    [line] = [line for line in caplog.messages if f"waiting for {what}" in line]
    assert "no heartbeat for 0.25 s" in line


async def test_the_name_of_a_worker_that_is_proved_dead_is_free_at_once(
    store: KeyValueStore,
) -> None:
    await register(store, dead_process_name(SUPERVISED_BOOT_PREFIX))

    assert await named(store) == f"{HOST}-1"

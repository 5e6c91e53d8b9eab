"""Locks on a real etcd use its leases: a holder writes nothing, and a dead one holds none."""

import asyncio
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from threading import Semaphore
from typing import TYPE_CHECKING

import pytest

from outlast.store.keyvalue.engine import Key, Write
from outlast.store.keyvalue.engines.etcd.leases import EtcdLeases
from outlast.store.open import open_store

from .sqlite_helpers import PATIENCE

if TYPE_CHECKING:
    from outlast.store.keyvalue.store import KeyValueStore
    from outlast.testing.servers.etcd import EtcdCluster

pytestmark = pytest.mark.slow

BEAT = 1.0
"""Seconds; a lease is five of them."""

HOLDER = """
import asyncio, sys
from outlast.store.open import open_store

async def main():
    store = open_store(sys.argv[1])
    await store.open()
    print(await store.acquire_lock("host-1") is not None, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def url(etcd: "EtcdCluster") -> str:
    return f"{etcd.url(f'leases-{secrets.token_hex(4)}')}?beat={BEAT}"


@pytest.fixture
async def store(url: str) -> AsyncIterator["KeyValueStore"]:
    opened = open_store(url)
    await opened.open()
    yield opened
    await opened.close()


async def test_lock_of_a_killed_process_is_free_when_its_lease_is_over(
    url: str, store: "KeyValueStore"
) -> None:
    with subprocess.Popen(  # noqa: ASYNC220 - it is only started
        [sys.executable, "-c", HOLDER, url], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == "True\n"
        refused = await store.acquire_lock("host-1")  # when the lease was seen to be kept

        holder.kill()
        taken = await store.acquire_lock("host-1")  # which waits for the lease

    assert refused is None
    assert taken is not None
    assert not taken.is_lost


async def test_lock_holder_on_etcd_writes_nothing_to_stay_alive(
    store: "KeyValueStore", monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, keep = Semaphore(0), EtcdLeases._keep

    async def counted(leases: EtcdLeases, lease: str) -> bool:
        is_kept = await keep(leases, lease)
        kept.release()
        return is_kept

    monkeypatch.setattr(EtcdLeases, "_keep", counted)
    lock = await store.acquire_lock("host-1")
    before = await store.engine.get([Key("liveness", who) for who in await _owners(store)])

    for _ in range(3):
        assert await asyncio.to_thread(kept.acquire, timeout=PATIENCE)
    after = await store.engine.get([Key("liveness", who) for who in await _owners(store)])

    assert lock is not None
    assert not lock.is_lost
    assert None not in before
    assert before == after, "the same versions: no write happened"


async def test_record_is_deleted_with_its_expired_lease(store: "KeyValueStore") -> None:
    leases = store.engine.leases
    kept, left = (Write(Key("liveness", name), {}) for name in ("kept", "left"))
    assert leases is not None
    keep = await leases.put(kept, span=2 * PATIENCE)
    too_late = await leases.put(left, span=1.0)

    async with asyncio.timeout(PATIENCE):
        while (await store.engine.get([left.key]))[0] is not None:  # noqa: ASYNC110 - same
            await asyncio.sleep(BEAT / 8)

    assert not await too_late()
    assert await keep()
    assert (await store.engine.get([kept.key]))[0] is not None


async def _owners(store: "KeyValueStore") -> list[str]:
    [lock] = await store.engine.get([Key("lock", "host-1")])
    assert lock is not None
    return [number.rpartition(".")[0] for number in lock.value["holders"]]

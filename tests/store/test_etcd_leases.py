"""Locks on a real etcd go by its leases: who holds one writes nothing, the dead hold none."""

import asyncio
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from outlast.store.keyvalue.engine import Key, Write
from outlast.store.open import open_store

if TYPE_CHECKING:
    from outlast.store.keyvalue.store import KeyValueStore
    from outlast.testing.servers.etcd import EtcdCluster

pytestmark = pytest.mark.slow

BEAT = 0.4
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
        await asyncio.sleep(10 * BEAT)  # two leases
        refused = await store.acquire_lock("host-1")

        holder.kill()
        taken = await store.acquire_lock("host-1")  # which waits for the lease

    assert refused is None
    assert taken is not None
    assert not taken.is_lost


async def test_whoever_holds_a_lock_on_etcd_writes_nothing_to_stay_alive(
    store: "KeyValueStore",
) -> None:
    lock = await store.acquire_lock("host-1")
    before = await store.engine.get([Key("liveness", who) for who in await _owners(store)])

    await asyncio.sleep(10 * BEAT)
    after = await store.engine.get([Key("liveness", who) for who in await _owners(store)])

    assert lock is not None
    assert not lock.is_lost
    assert None not in before
    assert before == after, "the same versions: nobody wrote them"


async def test_lease_that_nobody_keeps_takes_its_record_along(store: "KeyValueStore") -> None:
    leases, record = store.engine.leases, Write(Key("liveness", "somebody"), {})
    assert leases is not None
    keep = await leases.put(record, span=1.0)
    assert await keep()
    assert (await store.engine.get([record.key]))[0] is not None

    async with asyncio.timeout(30):
        while (await store.engine.get([record.key]))[0] is not None:  # noqa: ASYNC110 - same
            await asyncio.sleep(BEAT / 4)

    assert not await keep()


async def _owners(store: "KeyValueStore") -> list[str]:
    [lock] = await store.engine.get([Key("lock", "host-1")])
    assert lock is not None
    return [number.rpartition(".")[0] for number in lock.value["holders"]]

"""Watches of a real etcd: resumed where they were broken off, or anew when that is gone."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from outlast.store.keyvalue.engine import Key, Write
from outlast.store.keyvalue.engines.etcd.client import Cluster, EtcdClient
from outlast.store.keyvalue.engines.etcd.engine import EtcdEngine
from outlast.store.keyvalue.engines.etcd.watch import EtcdWatch

if TYPE_CHECKING:
    from outlast.testing.servers.etcd import EtcdCluster

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("etcd_watch")]
"""One after the other: a compaction is of the whole cluster, and what it forgets another misses."""

SOON = 120.0
STEP = 0.1


@pytest.fixture
async def wire(etcd: "EtcdCluster") -> AsyncIterator[EtcdClient]:
    opened = EtcdClient(Cluster(hosts=etcd.hosts))
    yield opened
    await opened.close()


@pytest.fixture
async def engine(etcd: "EtcdCluster") -> AsyncIterator[EtcdEngine]:
    prefix = f"watch-{secrets.token_hex(4)}"
    opened = EtcdEngine(Cluster(hosts=etcd.hosts), prefix=prefix)
    await opened.open()
    yield opened
    await opened.close()


class _Ear:
    """Collects what it hears, by the number in its key."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.is_new = asyncio.Event()

    def __call__(self, reported: Mapping[str, str]) -> None:
        self.received.append(reported["mod_revision"])
        self.is_new.set()


async def _revision(wire: EtcdClient) -> int:
    answer = await wire.ask("/v3/kv/range", {"key": "AA=="})
    return int(answer["header"]["revision"])


async def _put_until_heard(engine: EtcdEngine, ear: _Ear) -> None:
    async with asyncio.timeout(SOON):
        while not ear.is_new.is_set():
            await engine.transact({}, [Write(Key("ready#a", "1"), {"n": 1})])
            with suppress(TimeoutError):
                await asyncio.wait_for(ear.is_new.wait(), STEP)


async def test_watch_resumes_where_it_was_broken_off(wire: EtcdClient, engine: EtcdEngine) -> None:
    before, ear = await _revision(wire), _Ear()
    for number in range(3):
        await engine.transact({}, [Write(Key("ready#a", str(number)), {"n": number})])

    watch = EtcdWatch(wire, [engine._part_start("ready#")], ear, since=before + 1)
    async with asyncio.timeout(SOON):
        while len(ear.received) < 3:
            await ear.is_new.wait()
            ear.is_new.clear()
    await watch.stop()

    assert len(ear.received) == 3


async def test_one_connection_hears_of_several_parts(wire: EtcdClient, engine: EtcdEngine) -> None:
    before, ear = await _revision(wire), _Ear()
    for part in ("ready#a", "ended", "elsewhere", "open#a"):
        await engine.transact({}, [Write(Key(part, "1"), {"n": 1})])

    starts = [engine._part_start(part) for part in ("ready#", "ended", "open#")]
    watch = EtcdWatch(wire, starts, ear, since=before + 1)
    async with asyncio.timeout(SOON):
        while len(ear.received) < 3:
            await ear.is_new.wait()
            ear.is_new.clear()
    await watch.stop()

    assert len(ear.received) == 3


async def test_watch_whose_revision_was_compacted_hears_what_comes_next(
    wire: EtcdClient, engine: EtcdEngine
) -> None:
    await engine.transact({}, [Write(Key("ready#a", "0"), {"n": 0})])
    await wire.ask("/v3/kv/compaction", {"revision": str(await _revision(wire))})
    ear = _Ear()

    watch = EtcdWatch(wire, [engine._part_start("ready#")], ear, since=2)
    await _put_until_heard(engine, ear)
    await watch.stop()

    assert ear.received

"""A real etcd behind a slow link: a large answer arrives; a silent member is left."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

from outlast.store.keyvalue.engine import Key, KeyRange, Write
from outlast.store.keyvalue.engines.etcd.client import SILENCE_TIMEOUT_S, Cluster
from outlast.store.keyvalue.engines.etcd.engine import EtcdEngine
from support.servers.fault_proxy import FaultProxy, fault_proxy

if TYPE_CHECKING:
    from outlast.testing.servers.etcd import EtcdCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MBIT = 1_000_000 / 8
RECORDS = 20
RECORD = 100_000
SLOW = 8 * MBIT
"""Bytes per second, at which the answer takes longer than a silent member is waited for."""

SOON = 120.0


@pytest.fixture
def link(etcd: "EtcdCluster") -> Iterator[FaultProxy]:
    port = int(etcd.hosts[0].rpartition(":")[2])
    with fault_proxy(port, is_postgres=False) as proxy:
        yield proxy


async def _opened(*hosts: str, prefix: str) -> EtcdEngine:
    engine = EtcdEngine(Cluster(hosts=hosts), prefix=prefix)
    await engine.open()
    return engine


@pytest.fixture
async def engine(link: FaultProxy) -> AsyncIterator[EtcdEngine]:
    opened = await _opened(f"127.0.0.1:{link.port}", prefix=f"slow-{secrets.token_hex(4)}")
    yield opened
    await opened.close()


async def test_large_answer_over_a_slow_link_arrives(link: FaultProxy, engine: EtcdEngine) -> None:
    assert RECORDS * RECORD / SLOW > SILENCE_TIMEOUT_S
    for number in range(RECORDS):
        record = Write(Key("large", f"{number:03}"), {"text": "x" * RECORD})
        await engine.transact({}, [record])

    link.limit(SLOW)
    async with asyncio.timeout(SOON):
        found = await engine.range(KeyRange("large"), limit=RECORDS)

    assert len(found) == RECORDS


async def test_large_request_over_a_slow_link_is_written(
    link: FaultProxy, engine: EtcdEngine
) -> None:
    size = 1_200_000
    assert size / SLOW < SILENCE_TIMEOUT_S + size / 1_000_000
    link.limit(SLOW)

    async with asyncio.timeout(SOON):
        assert await engine.transact({}, [Write(Key("large", "1"), {"text": "x" * size})])

    assert (await engine.get([Key("large", "1")]))[0] is not None


async def test_silent_member_is_left_for_the_next(etcd: "EtcdCluster", link: FaultProxy) -> None:
    silent = f"127.0.0.1:{link.port}"
    engine = await _opened(silent, etcd.hosts[1], prefix=f"silent-{secrets.token_hex(4)}")
    link.pause()

    async with asyncio.timeout(SOON):
        assert await engine.transact({}, [Write(Key("a", "1"), {"n": 1})])

    link.resume()
    await engine.close()

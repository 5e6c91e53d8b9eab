"""The leader of an etcd cluster is killed under load: nothing is lost, and writes go on."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from outlast.core.decide import succeed
from outlast.core.ids import JobId
from outlast.core.state import State
from outlast.errors import StoreUnavailable
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.open import open_store
from outlast.testing.conformance.factories import make_job, put, take_many
from outlast.testing.servers.etcd import EtcdCluster, etcd_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE = 120.0
"""Seconds after which a write counts as stuck; `python -m bench takeover` says how soon it is."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    with etcd_cluster(tmp_path) as own:
        yield own


@pytest.fixture
async def store(cluster: EtcdCluster) -> AsyncIterator[Store]:
    opened = open_store(cluster.url("outage"))
    await opened.open()
    yield opened
    await opened.close()


async def _enqueue(store: Store, stop: asyncio.Event) -> list[JobId]:
    """Jobs that were acknowledged."""
    kept: list[JobId] = []
    while not stop.is_set():
        kept.append(await put(store))
    return kept


async def _work(store: Store, stop: asyncio.Event) -> list[JobId]:
    """Jobs whose end was acknowledged."""
    done: list[JobId] = []
    while not stop.is_set():
        for claim in await take_many(store, limit=5):
            assert await store.apply([succeed(claim.job_id, claim.token, None)]) == [True]
            done.append(claim.job_id)
    return done


async def test_killed_leader_loses_nothing_and_writes_go_on(
    cluster: EtcdCluster, store: Store
) -> None:
    stop = asyncio.Event()
    adding, working = (asyncio.create_task(act(store, stop)) for act in (_enqueue, _work))
    first = await put(store)
    leader = await asyncio.to_thread(lambda: cluster.leader)

    await asyncio.to_thread(leader.kill)
    async with asyncio.timeout(PATIENCE):
        last = await put(store)
    await put(store)
    stop.set()
    kept, done = await adding, await working

    found = {job.id: job.state for job in await store.find(Filter(), limit=100_000)}
    assert {first, last, *kept} <= found.keys()
    assert {found[job_id] for job_id in done} <= {State.SUCCEEDED}


async def test_cluster_without_a_majority_is_said_to_be_unreachable(
    cluster: EtcdCluster, store: Store
) -> None:
    await put(store)
    impatient = open_store(f"{cluster.url('outage')}?busy=2")
    await impatient.open()
    down = cluster.nodes[:2]
    for node in down:
        await asyncio.to_thread(node.kill)

    with pytest.raises(StoreUnavailable, match=r"no etcd endpoint of .* answered for 2 s"):
        await impatient.add([make_job()])

    for node in down:
        await asyncio.to_thread(node.start)
    for node in cluster.nodes:
        await asyncio.to_thread(node.program.wait, node.answers)
    await put(store)
    await impatient.close()

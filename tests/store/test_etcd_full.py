"""A full etcd: writes are refused, reads and `doctor` say so, and it recovers."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from outlast.core.decide import succeed
from outlast.core.state import State
from outlast.errors import StoreFull
from outlast.store.contract import Store
from outlast.store.keyvalue.engines.etcd.health import warnings
from outlast.store.open import open_store
from outlast.testing.conformance.factories import put, take
from outlast.testing.servers.etcd import EtcdCluster, Node, etcd_cluster
from outlast.verify import verify

MIB = 2**20
QUOTA = 4 * MIB


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    with etcd_cluster(tmp_path, f"--quota-backend-bytes={QUOTA}") as own:
        yield own


@pytest.fixture
async def store(cluster: EtcdCluster) -> AsyncIterator[Store]:
    opened = open_store(cluster.url("full"))
    await opened.open()
    yield opened
    await opened.close()


def _fill(node: Node) -> None:
    """Write one key again and again: its old revisions fill the quota until it is compacted."""
    value = b64encode(b"x" * (MIB // 2)).decode()
    with suppress(HTTPError):  # full
        for _ in range(4 * QUOTA // MIB):
            node.ask("kv/put", timeout=60, key=b64encode(b"other").decode(), value=value)


@pytest.mark.slow
async def test_a_full_etcd_refuses_writes_is_named_and_works_again_when_freed(
    cluster: EtcdCluster, store: Store
) -> None:
    await put(store, queue="first")
    claim = await take(store, queue="first")
    assert not await store.health_warnings()

    await asyncio.to_thread(_fill, cluster.nodes[0])
    with pytest.raises(StoreFull, match="compact and defragment"):
        await put(store)
    with pytest.raises(StoreFull):
        await store.apply([succeed(claim.job_id, claim.token, '"done"')])

    assert any("refuses writes" in warning for warning in await store.health_warnings())
    [job] = await store.get([claim.job_id])
    assert job is not None
    assert job.state is State.RUNNING

    await asyncio.to_thread(cluster.free_space)
    assert await store.apply([succeed(claim.job_id, claim.token, '"done"')]) == [True]
    assert not any("refuses writes" in warning for warning in await store.health_warnings())
    assert not (await verify(store)).violations


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"dbSize": str(100 * MIB)}, None),
        ({"dbSize": str(1_700 * MIB)}, "1,700 MiB of 2,048 MiB"),
        ({"dbSize": str(1_700 * MIB), "dbSizeQuota": str(8_192 * MIB)}, None),
        ({"dbSize": str(7_000 * MIB), "dbSizeQuota": str(8_192 * MIB)}, "of 8,192 MiB (its quota)"),
        ({"dbSize": "0", "errors": ["memberID:1 alarm:NOSPACE "]}, "etcdctl alarm disarm"),
        ({"dbSize": "0", "errors": ["memberID:1 alarm:CORRUPT "]}, "alarm:CORRUPT"),
    ],
)
def test_warnings_name_alarms_and_a_database_that_is_nearly_full(
    status: Mapping[str, Any], told: str | None
) -> None:
    found = warnings(status)

    assert len(found) == (told is not None)
    assert told is None or told in found[0]

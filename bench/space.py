"""`python -m bench space`: bytes of etcd's database per finished job that is kept."""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Final

from bench.progress import tell
from bench.report import table
from outlast.core.decide import succeed
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.run import LeaseHolder
from outlast.store.contract import Store
from outlast.store.open import open_store
from outlast.testing.servers.etcd import EtcdCluster, etcd_cluster

BATCH: Final = 250
HOLDER: Final = LeaseHolder(instance_id="bench", boot_id="tree.bench")
QUOTA: Final = 2 * 2**30
PAYLOADS: Final = (20, 1_000, 10_000)


def main(words: Sequence[str]) -> int:
    """Print a row for each payload size."""
    asked = _parser().parse_args(words)
    rows = [["bytes of params", "per kept job", "before compaction", "kept jobs per 2 GiB"]]
    for payload in asked.payloads:
        with (
            tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder,
            etcd_cluster(Path(folder)) as cluster,
        ):
            tell(f"etcd, {asked.jobs:,} jobs of {payload:,} bytes")
            kept, before = asyncio.run(_measured(cluster, asked.jobs, payload))
        rows.append([f"{payload:,}", f"{kept:,.0f} B", f"{before:,.0f} B", f"{QUOTA / kept:,.0f}"])
    tell()
    print("\n".join(table(rows)), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench space", description=__doc__)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--payloads", nargs="+", type=int, default=list(PAYLOADS))
    return parser


async def _measured(cluster: EtcdCluster, jobs: int, payload: int) -> tuple[float, float]:
    """Return the bytes per job after and before compaction and defragmentation."""
    store = open_store(cluster.url("bench"))
    await store.open()
    empty = _freed(cluster)
    await _finish(store, jobs, json.dumps("x" * payload))
    before = _size(cluster)
    await store.close()
    return (_freed(cluster) - empty) / jobs, (before - empty) / jobs


async def _finish(store: Store, jobs: int, params: str) -> None:
    numbers = count(1)
    for _ in range(0, jobs, BATCH):
        ids = [JobId(f"00000000-0000-7000-8000-{next(numbers):012x}") for _ in range(BATCH)]
        await store.add([NewJob(id=i, type="t", name="t", params=params, queue="q") for i in ids])
        claims = await store.claim(
            HOLDER, queue="q", types=["t"], limit=BATCH, lease=timedelta(minutes=5)
        )
        await store.apply([succeed(claim.job_id, claim.token, '"done"') for claim in claims])


def _freed(cluster: EtcdCluster) -> int:
    cluster.free_space()
    return _size(cluster)


def _size(cluster: EtcdCluster) -> int:
    return int(cluster.nodes[0].ask("maintenance/status")["dbSize"])

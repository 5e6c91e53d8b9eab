"""`python -m bench start`: seconds to the first job of a worker, after many finished jobs."""

import argparse
import asyncio
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from bench.progress import tell
from bench.report import table
from bench.stores import STORES
from outlast.core.decide import succeed
from outlast.core.ids import Ids
from outlast.core.job import NewJob
from outlast.core.run import LeaseHolder
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.open import open_store

ROOT = Path(__file__).resolve().parent.parent
WORKER = [sys.executable, "-m", "outlast", "worker", "-a", "bench.start_app:app", "--burst"]
HOLDER = LeaseHolder(instance_id="history", boot_id="history")
_IDS = Ids(lambda: datetime.now(UTC), secrets.randbits)
LEASE = timedelta(minutes=10)
BATCH = 250
ROUNDS = 3
ASKED = 2.0
"""How many times as long as on an empty store the first job may take."""


def main(words: Sequence[str]) -> int:
    """Return 0 if every store meets the target, else 1."""
    asked = _parser().parse_args(words)
    rows = [_measured(label, asked.finished) for label in asked.only or STORES]
    tell()
    head = ["store", "empty, s", f"{asked.finished:,} finished, s", "ratio", "asked, under"]
    told = [
        [label, f"{empty:.2f}", f"{full:.2f}", f"{full / empty:.2f}", f"{ASKED:g}"]
        for label, empty, full in rows
    ]
    print("\n".join(table([head, *told])))
    return 0 if all(full / empty < ASKED for _, empty, full in rows) else 1


def _measured(label: str, finished: int) -> tuple[str, float, float]:
    """Return the medians on an empty store, and on one with a history, measured in turn."""
    with STORES[label]() as empty, STORES[label]() as full:
        tell(f"{label}, finishing {finished:,} jobs")
        asyncio.run(_finish(full, finished))
        tell(f"{label}, starting workers")
        took = [(_first_job(empty), _first_job(full)) for _ in range(ROUNDS)]
        return label, median(one for one, _ in took), median(other for _, other in took)


def _first_job(url: str) -> float:
    """Return the seconds from the start of a worker to the end of the only job that waits."""
    asyncio.run(_add(url))
    env = {**os.environ, "OUTLAST_BENCH_URL": url, "PYTHONPATH": str(ROOT)}
    started = datetime.now(UTC)
    subprocess.run(WORKER, check=True, capture_output=True, env=env)
    return (asyncio.run(_last_end(url)) - started).total_seconds()


async def _add(url: str) -> None:
    store = open_store(url)
    await store.open()
    await store.add(_jobs(1))
    await store.close()


async def _last_end(url: str) -> datetime:
    store = open_store(url)
    await store.open()
    [last] = await store.find(Filter(), limit=1)
    await store.close()
    assert last.finished_at is not None
    return last.finished_at


async def _finish(url: str, jobs: int) -> None:
    """Let jobs end as a worker lets them end."""
    store: Store = open_store(url)
    await store.open()
    for start in range(0, jobs, BATCH):
        await store.add(_jobs(min(BATCH, jobs - start)))
        while claims := await store.claim(
            HOLDER, queue="default", types=["noop"], limit=BATCH, lease=LEASE
        ):
            await store.apply([succeed(claim.job_id, claim.token, None) for claim in claims])
    await store.close()


def _jobs(count: int) -> list[NewJob]:
    return [
        NewJob(id=_IDS.job(), type="noop", name="noop", params="{}", queue="default")
        for _ in range(count)
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench start", description=__doc__)
    add = parser.add_argument
    add("--finished", type=int, default=100_000, help="how many jobs have ended (100000)")
    add("--only", nargs="+", choices=list(STORES), help="measure on these stores alone")
    return parser

"""`python -m bench producers`: jobs stored per second by concurrent producers on etcd."""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from bench.progress import tell
from bench.report import table
from outlast import Outlast
from outlast.testing.servers.etcd import shared_etcd

PRODUCERS = (1, 10, 50, 200)


def main(words: Sequence[str]) -> int:
    """Return 0 if the most producers store no fewer jobs per second than ten, else 1."""
    asked = _parser().parse_args(words)
    with (
        tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder,
        shared_etcd(Path(folder)) as cluster,
    ):
        rates = asyncio.run(_rates(cluster.url("producers"), asked.jobs))
    tell()
    rows = [[f"{producers}", f"{rate:,.0f}"] for producers, rate in rates.items()]
    print("\n".join(table([["producers", "jobs/s"], *rows])))
    return 0 if rates[200] >= rates[10] else 1


async def _rates(url: str, jobs: int) -> dict[int, float]:
    app = Outlast(url)

    @app.job
    async def noop() -> None:
        """Stay in the queue."""

    async def produce(count: int) -> None:
        for _ in range(count):
            await noop.enqueue()

    rates = {}
    async with app:
        for producers in PRODUCERS:
            tell(f"{producers} producers")
            since = perf_counter()
            await asyncio.gather(*(produce(max(1, jobs // producers)) for _ in range(producers)))
            stored = producers * max(1, jobs // producers)
            rates[producers] = stored / (perf_counter() - since)
    return rates


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench producers", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2_000, help="jobs for each row (2000)")
    return parser

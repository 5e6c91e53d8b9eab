"""`python -m bench due`: how late delayed jobs start, and how a backlog is shared by workers.

Several `outlast worker` serve one store. Start times are read from the stored runs.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

from outlast import Handle, Outlast
from outlast.testing.servers.postgres import postgres_server

URL = "OUTLAST_BENCH_DUE"
MAX_LATE_MS = 50.0
MAX_SHARE = 0.45


def register(app: Outlast) -> tuple[Any, Any]:
    """Register the two job types of this measurement."""

    @app.job
    async def brief() -> None:
        await asyncio.sleep(0.005)

    @app.job
    async def delayed() -> None: ...

    return brief, delayed


def main(words: Sequence[str]) -> int:
    """Return 0 if the p95 of the delays and each worker's share are as asked, else 1."""
    asked = _parser().parse_args(words)
    is_well = True
    with _stores(postgres=not asked.sqlite_only) as stores:
        for name, url in stores:
            late, shares = asyncio.run(_measure(url, asked))
            p95 = quantiles(late, n=20)[-1]
            print(f"{name}: start after the due time, p95 {p95:.1f} ms, most {max(late):.1f} ms")
            print(f"{name}: shares of {asked.jobs:,} jobs: {', '.join(f'{s:.0%}' for s in shares)}")
            is_well &= p95 <= MAX_LATE_MS and max(shares) <= MAX_SHARE
    return 0 if is_well else 1


async def _measure(url: str, asked: argparse.Namespace) -> tuple[list[float], list[float]]:
    async with Outlast(url) as app:
        brief, delayed = register(app)
        async with _workers(app, url, asked.workers):
            late = [await _late_ms(app, delayed) for _ in range(asked.due)]
            handles = await app.enqueue_many(brief.bind() for _ in range(asked.jobs))
            ran = Counter([await _holder(app, handle) for handle in handles])
    return late, [count / asked.jobs for count in ran.values()]


async def _late_ms(app: Outlast, delayed: Any) -> float:
    handle = await delayed.options(delay="600ms").enqueue()
    due = (await handle.read()).available_at
    await handle.wait("60s")
    run = (await app.runs(handle.id))[-1]
    return float((run.started_at - due).total_seconds() * 1000)


async def _holder(app: Outlast, handle: Handle[Any]) -> str:
    await handle.wait("120s")
    return (await app.runs(handle.id))[-1].holder


@asynccontextmanager
async def _workers(app: Outlast, url: str, count: int) -> AsyncIterator[None]:
    program = [sys.executable, "-m", "outlast", "worker", "bench.due_app:app"]
    options = ["--log-level", "warning", "--instance-id"]
    env = {**os.environ, URL: url}
    started = [
        await asyncio.create_subprocess_exec(*program, *options, f"w{n}", env=env)
        for n in range(count)
    ]
    try:
        while sum(each.is_alive for each in await app.store.workers()) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)  # their children connect
        yield
    finally:
        for each in started:
            each.terminate()
        for each in started:
            await each.wait()


@contextmanager
def _stores(*, postgres: bool) -> Iterator[list[tuple[str, str]]]:
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder:
        sqlite = "SQLite", f"sqlite:///{Path(folder) / 'jobs.db'}"
        if not postgres:
            yield [sqlite]
            return
        with postgres_server() as server:
            yield [sqlite, ("PostgreSQL", server.new_database())]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench due", description=__doc__)
    add = parser.add_argument
    add("--workers", type=int, default=3, help="how many workers serve the store (3)")
    add("--jobs", type=int, default=3_000, help="jobs of 5 ms that they share (3,000)")
    add("--due", type=int, default=40, help="jobs that become due in 0.6 s, one by one (40)")
    add("--sqlite-only", action="store_true", help="leave PostgreSQL out")
    return parser

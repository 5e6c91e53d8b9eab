"""`python -m bench transactions`: how long others wait beside back-to-back handler transactions."""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from bench.progress import tell
from bench.report import table
from outlast import Outlast, Run, State

TRANSACTION_S = 3.0
"""Seconds that each transaction lasts."""

ASKED_S = 7.0
"""Target of the 99th percentile: two transactions and a second."""

PROCESSES = (2, 4)
JOBS = 5
PAUSE_S = 0.2


def make_app(path: Path) -> Outlast:
    """Return the app of every process of the measurement, with default settings."""
    app = Outlast(f"sqlite:///{path}")

    @app.job(queue="writers", name="writes")
    async def writes(run: Run, n: int) -> int:
        async with run.transaction() as conn:
            conn.execute("CREATE TABLE IF NOT EXISTS effects (n INTEGER)")
            conn.execute("INSERT INTO effects VALUES (?)", (n,))
            await asyncio.sleep(TRANSACTION_S)
        return n

    @app.job(queue="holders", name="holds")
    async def holds(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @app.job(queue="nowhere", name="small")
    async def small() -> None: ...

    return app


async def work(path: Path, queue: str) -> None:
    """Run a worker of one queue until the process is terminated."""
    async with make_app(path) as app, app.worker(queues=[queue]):
        await asyncio.Event().wait()


async def measure(path: Path, processes: int, seconds: float) -> tuple[list[float], int]:
    """Return the seconds that each enqueue took, and how many runs lost their lease."""
    async with make_app(path) as app:
        holds, writes, small = (app.registry.get(name) for name in ("holds", "writes", "small"))
        held = await app.enqueue_many(holds.bind(seconds) for _ in range(JOBS))
        await app.enqueue_many(
            writes.bind(n) for n in range(int(2 * processes * seconds / TRANSACTION_S))
        )
        children = [_child(path, "holders"), *(_child(path, "writers") for _ in range(processes))]
        try:
            while (await held[0].read()).state is not State.RUNNING:  # noqa: ASYNC110 - bench
                await asyncio.sleep(PAUSE_S)
            waits = await _enqueue_for(seconds, small)
            lost = 0
            for handle in held:
                await handle.wait("5m")
                lost += len(await app.runs(handle.id)) - 1
        finally:
            for child in children:
                child.kill()
                child.wait()
    return waits, lost


async def _enqueue_for(seconds: float, small: object) -> list[float]:
    waits, end = [], perf_counter() + seconds
    while perf_counter() < end:
        since = perf_counter()
        await small.enqueue()  # type: ignore[attr-defined]
        waits.append(perf_counter() - since)
        await asyncio.sleep(PAUSE_S)
    return waits


def _child(path: Path, queue: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "bench.transactions", str(path), queue]
    return subprocess.Popen(command, env=dict(os.environ))


def main(words: Sequence[str]) -> int:
    """Return 0 if every 99th percentile meets its target and no lease was lost, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench transactions", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement (60)")
    seconds = parser.parse_args(words).seconds
    rows, is_well = [["processes", "enqueues", "p50 s", "p99 s", "worst s", "leases lost"]], True
    for processes in PROCESSES:
        tell(f"{processes} processes with transactions of {TRANSACTION_S:g} s")
        with tempfile.TemporaryDirectory(prefix="outlast-bench-") as name:
            waits, lost = asyncio.run(measure(Path(name, "jobs.db"), processes, seconds))
        cuts = quantiles(waits, n=100, method="inclusive")
        figures = [f"{each:.2f}" for each in (cuts[49], cuts[98], max(waits))]
        rows.append([str(processes), str(len(waits)), *figures, str(lost)])
        is_well &= cuts[98] < ASKED_S and not lost
    tell()
    print("\n".join(table(rows)))
    return 0 if is_well else 1


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2]))

"""`python -m bench logs`: what middleware and two captured lines per job cost a worker."""

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from statistics import median

from bench import machine
from bench.probe import LIMIT, Probe, rate
from bench.progress import tell
from bench.report import table
from outlast import JobType, Outlast, Run, State
from outlast.store.sqlite.store import SqliteStore

LEAST: float = 0.8
"""Target: jobs per second with both, as a part of those whose lines are not kept."""

COMPARED = "two lines, not kept"
KINDS = {
    "nothing": (False, False, False),
    COMPARED: (False, True, False),
    "two lines": (False, True, True),
    "middleware and two lines": (True, True, True),
}
"""What is measured: with middleware, with log lines, with capture."""

log = logging.getLogger("bench.handler")


def main(words: Sequence[str]) -> int:
    """Measure each kind in turn; 1 if the target is missed."""
    asked = _parser().parse_args(words)
    logging.basicConfig(level=logging.INFO, handlers=[logging.NullHandler()])
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="outlast-bench-", dir=machine.same_disk()) as name:
        for number in range(asked.rounds):
            for kind in list(KINDS)[:: 1 if number % 2 == 0 else -1]:
                tell(f"round {number + 1} of {asked.rounds}, {kind}")
                path = Path(name) / f"{kind}-{number}.db"
                found[kind].append(asyncio.run(_bounded(path, asked.jobs, kind)))
    tell()
    ratios = {
        kind: median(a / b for a, b in zip(rates, found[COMPARED], strict=True))
        for kind, rates in found.items()
    }
    rows = [[k, f"{median(found[k]):,.0f}", f"{ratios[k]:.2f}"] for k in KINDS]
    print("\n".join(table([["a job has", "jobs/s", "ratio"], *rows])))
    return int(min(ratios.values()) < LEAST)


async def _bounded(path: Path, jobs: int, kind: str) -> float:
    async with asyncio.timeout(LIMIT):
        return await _drain(path, jobs, kind)


async def _drain(path: Path, jobs: int, kind: str) -> float:
    full = asyncio.Event()
    probe, store = Probe(jobs, full.set), SqliteStore(path)
    app, work = _make_app(store, probe, kind)
    async with app:
        await app.enqueue_many(work.bind(0.0) for _ in range(jobs))
        async with app.worker():
            await full.wait()
            while await store.counts() != {("default", State.SUCCEEDED): jobs}:  # noqa: ASYNC110 - another connection sees only durable rows
                await asyncio.sleep(0.001)
            return rate(jobs, probe.first)["per_second"]


def _make_app(
    store: SqliteStore, probe: Probe, kind: str
) -> tuple[Outlast, JobType[[float], None]]:
    has_middleware, has_lines, captures = KINDS[kind]
    app = Outlast(store, log_capture=captures)
    if has_middleware:

        @app.around
        async def around(run: Run) -> AsyncIterator[None]:  # noqa: ARG001 - it is given
            yield

    @app.job
    async def work(sent: float) -> None:
        if has_lines:
            log.info("started %s", sent)
            log.info("done")
        probe.hit(sent)

    return app, work


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench logs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

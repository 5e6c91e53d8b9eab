"""Outlast under measurement: the embedded worker and the public API."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.probe import GAP, LIMIT, WARM, Probe, pick_up, rate
from outlast import JobType, Outlast, State
from outlast.store.sqlite.connection import connect
from outlast.store.sqlite.store import SqliteStore

Noop = JobType[[float], None]


def one(path: Path, jobs: int) -> dict[str, float]:
    """Enqueue one after the other, each awaited until it is durable."""
    return _run(_one(path, jobs))


def bulk(path: Path, jobs: int) -> dict[str, float]:
    """Enqueue them all with `enqueue_many`, from the first argument checked to all durable."""
    return _run(_bulk(path, jobs))


def drain(path: Path, jobs: int) -> dict[str, float]:
    """Run the queued jobs, from the first start of a handler until all have ended."""
    return _run(_drain(path, jobs))


def latency(path: Path, jobs: int) -> dict[str, float]:
    """From the call of `enqueue` to the handler's start, worker and caller on one idle loop."""
    return _run(_latency(path, jobs))


def pragmas(path: Path) -> dict[str, Any]:
    """Return the pragmas of a connection like that of the writer."""
    connection = connect(path, busy=5.0)
    try:
        names = ("journal_mode", "synchronous")
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
    finally:
        connection.close()


async def _one(path: Path, jobs: int) -> dict[str, float]:
    app, noop = make_app(SqliteStore(path), Probe())
    async with app:
        await noop.enqueue(0.0)
        since = perf_counter()
        for _ in range(jobs):
            await noop.enqueue(0.0)
        return rate(jobs, since)


async def _bulk(path: Path, jobs: int) -> dict[str, float]:
    app, noop = make_app(SqliteStore(path), Probe())
    async with app:
        since = perf_counter()
        await app.enqueue_many(noop.bind(0.0) for _ in range(jobs))
        return rate(jobs, since)


async def _drain(path: Path, jobs: int) -> dict[str, float]:
    full = asyncio.Event()
    probe = Probe(jobs, full.set)
    store = SqliteStore(path)
    app, _ = make_app(store, probe)
    async with app, app.worker():
        await full.wait()
        # Another connection sees only durable rows, so the store is polled, not the worker.
        while await store.counts() != {("default", State.SUCCEEDED): jobs}:  # noqa: ASYNC110 - same
            await asyncio.sleep(0.001)
        return rate(jobs, probe.first)


async def _latency(path: Path, jobs: int) -> dict[str, float]:
    full = asyncio.Event()
    probe = Probe(WARM + jobs, full.set)
    app, noop = make_app(SqliteStore(path), probe)
    async with app, app.worker():
        for _ in range(WARM + jobs):
            await asyncio.sleep(GAP)
            await noop.enqueue(perf_counter())
        await full.wait()
    return pick_up(probe.waits)


def make_app(store: SqliteStore, probe: Probe) -> tuple[Outlast, Noop]:
    """Return an app on that store and its job type."""
    app = Outlast(store)

    @app.job
    async def noop(sent: float) -> None:
        probe.hit(sent)

    return app, noop


def _run(measurement: Coroutine[Any, Any, dict[str, float]]) -> dict[str, float]:
    async def bounded() -> dict[str, float]:
        async with asyncio.timeout(LIMIT):
            return await measurement

    return asyncio.run(bounded())

"""A move while workers work: nothing is lost, nothing is done twice, and they find out alone."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from outlast import Outlast
from outlast.clock import SystemClock
from outlast.core.state import State
from outlast.errors import StoreMoved, StoreSealed
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.contract.transfer import StatusChange, TransferStage
from outlast.store.open import open_store
from outlast.verify import verify

from .store_pairs import accepting, move

ENOUGH = 50
"""Jobs, so that there is a history."""

FAST = {"poll": "20ms", "tick": "50ms", "grace": "60s"}
SOON = timedelta(milliseconds=100)
PROGRAM = """
import asyncio, os, signal, sys
from datetime import timedelta
from outlast.transfer import StoreCopy
from outlast.core.ids import Ids
from outlast.store.open import open_store
from random import Random
from datetime import datetime, UTC

class Fatal:
    def __init__(self, store, stage):
        self.store, self.stage = store, stage
    def __getattr__(self, name):
        return getattr(self.store, name)
    async def change_transfer_status(self, change):
        taken = await self.store.change_transfer_status(change)
        if change.stage == self.stage:
            os.kill(os.getpid(), signal.SIGKILL)
        return taken

async def main(one, other, stage):
    source, target = open_store(one), open_store(other)
    await source.open()
    await target.open()
    ids = Ids(lambda: datetime.now(UTC), Random(1).getrandbits)
    await StoreCopy(Fatal(source, stage), Fatal(target, stage), from_url=one, to_url=other,
                 new_id=ids.job, grace=timedelta(0), seal=timedelta(seconds=3)).run()

asyncio.run(main(*sys.argv[1:]))
"""


async def until(is_so: Callable[[], bool]) -> None:
    """Others have their turn until it is; a test that waits in vain runs out of its time."""
    while not is_so():  # noqa: ASYNC110 - other threads set no event
        await asyncio.sleep(0.002)


def clock_passes(moment: datetime | None) -> None:
    while moment is not None and SystemClock().now() < moment:
        time.sleep(0.02)


def app_on(url: str, done: Counter[int]) -> Outlast:
    app = Outlast(url, **FAST)

    @app.job(name="count")
    async def count(number: int) -> int:
        await asyncio.sleep(0)
        done[number] += 1
        return number

    return app


async def test_a_worker_at_work_loses_nothing_and_does_nothing_twice(
    tmp_path: Path, postgres_url: str
) -> None:
    """From a file to a server, while a client keeps adding jobs."""
    done: Counter[int] = Counter()
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    app, later = app_on(url, done), app_on(postgres_url, done)
    added = 0
    moved = asyncio.Event()

    async def enqueue(app: Outlast) -> None:
        nonlocal added
        await app.registry.get("count").enqueue(number=added)
        added += 1

    async def keep_adding() -> None:
        for _ in range(10_000):
            try:
                await enqueue(app)
            except StoreSealed:
                await asyncio.sleep(0.01)
            except StoreMoved:
                moved.set()
                return

    async with app, later, app.worker(concurrency=4):
        adding = asyncio.create_task(keep_adding())
        await until(lambda: added > ENOUGH or adding.done())
        copied = await move(app.store, later.store, grace=timedelta(minutes=1))
        await asyncio.wait_for(moved.wait(), 200)
        await adding
        async with later.worker(concurrency=4) as worker:
            await enqueue(later)
            await worker.drained()
        jobs = await later.store.find(Filter(), limit=20_000)
        report = await verify(later.store)

    assert copied is not None
    assert done == Counter(range(added))
    assert len(jobs) == added
    assert {job.state for job in jobs} == {State.SUCCEEDED}
    assert report.is_sound


async def test_what_still_runs_when_the_grace_is_over_is_handed_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started, runs = asyncio.Event(), 0
    url, other = (f"sqlite:///{tmp_path / name}" for name in ("jobs.db", "other.db"))

    def make(url: str) -> Outlast:
        app = Outlast(url, **FAST)

        @app.job(name="long")
        async def long() -> None:
            nonlocal runs
            runs += 1
            started.set()
            await asyncio.sleep(0 if runs > 1 else 600)

        return app

    app, later = make(url), make(other)
    with caplog.at_level(logging.WARNING, "outlast.worker"):
        async with app, later, app.worker():
            job = await app.registry.get("long").enqueue()
            await started.wait()
            await move(app.store, later.store, grace=SOON)
            await until(lambda: "claiming stopped" in " ".join(caplog.messages))
            async with later.worker() as worker:
                await worker.drained()
            [record] = await later.store.get([job.id])

    assert record is not None
    assert (record.state, record.failures, record.token) == (State.SUCCEEDED, 0, 2)
    reported = " ".join(caplog.messages)
    assert "running jobs are stopped and released" in reported
    assert reported.count("claiming stopped: this store was moved to") == 1


async def test_a_sealed_worker_waits_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done: Counter[int] = Counter()
    app = app_on(f"sqlite:///{tmp_path / 'jobs.db'}", done)
    minute = {"span": timedelta(minutes=1), "grace": timedelta(minutes=1)}
    seal = StatusChange(
        stage=TransferStage.SEALED, other="sqlite:////b.db", transfer_id="me", **minute
    )
    with caplog.at_level(logging.INFO, "outlast.worker"):
        async with app:
            await app.registry.get("count").enqueue(number=1)
            await app.store.change_transfer_status(seal)
            async with app.worker() as worker:
                await until(lambda: "claiming paused" in " ".join(caplog.messages))
                opened = StatusChange(stage=TransferStage.OPEN, other=seal.other, transfer_id="me")
                assert await app.store.change_transfer_status(opened)
                await worker.drained()

    reported = " ".join(caplog.messages)
    assert done == Counter([1])
    assert (reported.count("claiming paused"), reported.count("claiming resumed")) == (1, 1)


async def opened(url: str) -> Store:
    store = open_store(url)
    await store.open()
    return store


@pytest.mark.parametrize(
    ("stage", "working"),
    [
        (TransferStage.SEALED, "source"),
        (TransferStage.READY, "source"),
        (TransferStage.MOVED, "target"),
    ],
)
async def test_killed_for_real_exactly_one_takes_work(
    tmp_path: Path, stage: TransferStage, working: str
) -> None:
    url, other = (f"sqlite:///{tmp_path / name}" for name in ("jobs.db", "other.db"))
    source = await opened(url)
    program = [sys.executable, "-c", PROGRAM, url, other, stage]
    killed = await asyncio.to_thread(subprocess.run, program, env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    target = await opened(other)

    if stage in (TransferStage.SEALED, TransferStage.READY):
        footing = await source.transfer_status()
        assert footing.until is not None or footing.stage is TransferStage.OPEN
        await asyncio.to_thread(clock_passes, footing.until)  # while no process runs
    assert await accepting(source, target) == [working]

    await source.close()
    await target.close()

"""Several workers share a backlog: none holds more ready than its share of what waits."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from math import inf

import pytest
from worker_helpers import SOON, quick, until

from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerRecord
from outlast.errors import StoreBusy
from outlast.worker import fair_share
from outlast.worker.fair_share import MAX_AGE_S, REFRESH_INTERVAL_S, FairShare

BACKLOG = 300
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ME = LeaseHolder(instance_id="w0", boot_id="boot")


def record(number=1, **over):
    plain = {
        "instance_id": f"w{number}",
        "boot_id": "boot",
        "host": "here",
        "pid": number,
        "queues": ("default",),
        "types": ("quick",),
        "concurrency": 10,
        "started_at": NOW,
        "seen_at": NOW,
        "stopped_at": None,
        "is_alive": True,
    }
    return WorkerRecord(**{**plain, **over})


class Registry:
    """A registry with these workers, which counts how often it is read."""

    def __init__(self, *records):
        self.records, self.reads, self.error = list(records), 0, None

    async def workers(self):
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.records


class Stage:
    """The share of worker `w0`, at a time that the test sets."""

    def __init__(self, *records):
        self.now, self.registry = 100.0, Registry(*records)
        self.share = FairShare(self.registry, ME, concurrency=10, time=lambda: self.now)

    async def read(self):
        self.share.refresh(["default"], ["quick"])
        if self.share._reading is not None:
            await asyncio.wait([self.share._reading])


async def test_nothing_is_prefetched_before_the_other_workers_are_known():
    stage = Stage(record(0))

    before = stage.share.room("default", 0, 500)
    await stage.read()

    assert (before, stage.share.room("default", 0, 500)) == (0, 500)


async def test_worker_alone_is_not_bounded_and_counts_nothing():
    stage = Stage(record(0))
    await stage.read()

    assert stage.share.room("default", 1000, 500) == 500
    assert stage.share.to_count("default", 1000, 500) == 0


async def test_share_is_that_of_the_capacity():
    stage = Stage(record(0), record(1, concurrency=20, processes=2))
    await stage.read()

    stage.share.claimed("default", 100)

    assert stage.share.room("default", 0, 500) == 100 * 10 // (10 + 40)


async def test_processes_of_the_same_worker_share_as_others_do():
    stage = Stage(record(0, processes=4))
    await stage.read()

    stage.share.claimed("default", 100)

    assert stage.share.room("default", 0, 500) == 25


@pytest.mark.parametrize(
    "over",
    [{"is_alive": False}, {"is_stopping": True}, {"queues": ("other",)}, {"types": ("other",)}],
)
async def test_worker_that_claims_none_of_these_jobs_has_no_share(over):
    stage = Stage(record(0), record(1, **over))
    await stage.read()

    assert stage.share.room("default", 0, 500) == 500


async def test_unknown_backlog_is_not_prefetched_beside_others():
    stage = Stage(record(0), record(1))
    await stage.read()

    stage.share.claimed("default", None)

    assert stage.share.room("default", 0, 500) == 0
    assert stage.share.to_count("default", 0, 500) == 1000


async def test_repeated_claims_of_one_worker_never_exceed_its_share():
    stage, held, left = Stage(record(0), record(1), record(2)), 0, 3000
    await stage.read()

    for _ in range(100):
        stage.share.claimed("default", left)
        more = stage.share.room("default", held, 500)
        held, left = held + more, left - more

    assert held == pytest.approx(1000, abs=1)
    assert held + left == 3000


async def test_count_suffices_for_the_room_it_was_made_for():
    stage = Stage(record(0), record(1), record(2))
    await stage.read()

    for held in (0, 10, 500):
        stage.share.claimed("default", stage.share.to_count("default", held, 500))
        assert stage.share.room("default", held, 500) >= 499


async def test_registry_is_read_once_in_an_interval_and_forgotten_when_old():
    stage = Stage(record(0))
    for _ in range(3):
        await stage.read()
    stage.now += REFRESH_INTERVAL_S
    await stage.read()
    stage.registry.error = StoreBusy("locked, says the test")

    stage.now += MAX_AGE_S - 0.1
    await stage.read()
    still = stage.share.room("default", 0, 500)
    stage.now += 0.1

    assert (stage.registry.reads, still) == (3, 500)
    assert stage.share.room("default", 0, 500) == 0


@pytest.fixture
def always_known(monkeypatch):
    """What was read of the registry is as good later, however slow the machine is."""
    monkeypatch.setattr(fair_share, "REFRESH_INTERVAL_S", 0.0)
    monkeypatch.setattr(fair_share, "MAX_AGE_S", inf)


async def test_three_workers_hold_no_more_ready_than_their_shares(path, hoarding, always_known):
    """They would hold ready all there is: their jobs are quick, and they may hold 1,500."""
    held = await _held_by(path, 3)

    assert max(held) <= BACKLOG * 0.45
    assert min(held) >= BACKLOG * 0.1


async def test_worker_alone_holds_ready_all_it_may(path, hoarding, always_known):
    assert await _held_by(path, 1) == [BACKLOG]


async def _held_by(path, workers):
    """How many of the jobs each worker has claimed when none claims more, and none has ended."""
    release = asyncio.Event()
    async with AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(_app(path, n, release)) for n in range(workers)]
        dispatchers = []
        for number, app in enumerate(apps):
            worker = app.worker(queues=["default", f"first-{number}"])
            await stack.enter_async_context(worker)
            dispatchers.append(worker._engine._dispatcher)
        await until(lambda: _all_alive(apps[0], workers))
        for number, (app, each) in enumerate(zip(apps, dispatchers, strict=True)):
            await _knows_others(app, number, each._fair, 2 * (workers - 1))
        jobs = apps[0].registry.get("blocks")
        handles = await apps[0].enqueue_many(jobs.bind() for _ in range(BACKLOG))

        def all_rest():
            held = [each.claimed_count - each._concurrency for each in dispatchers]
            room = [each._prefetch_capacity("default") for each in dispatchers]
            return sum(held) + 2 * workers == BACKLOG or (min(held) > 0 and not any(room))

        await until(all_rest)
        held = [each.claimed_count for each in dispatchers]
        release.set()
        await asyncio.gather(*(handle.wait(SOON) for handle in handles))
    return held


async def _knows_others(app, number, share, capacity):
    """Run quick jobs until the worker knows their run time and the capacity of the others."""
    while share._others.get("default") != capacity:
        first = app.registry.get(f"first-{number}")
        handles = await app.enqueue_many(first.bind() for _ in range(5))
        await asyncio.gather(*(handle.wait(SOON) for handle in handles))


def _app(path, number, release):
    app = quick(path, concurrency=2, prefetch=1500)

    @app.job(name="blocks")
    async def blocks() -> None:
        await release.wait()

    @app.job(name=f"first-{number}", queue=f"first-{number}")
    async def first() -> None: ...

    return app


async def _all_alive(app, workers):
    return sum(worker.is_alive for worker in await app.store.workers()) == workers

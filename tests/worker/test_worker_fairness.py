"""A worker that holds work ready must not let that work overtake what it may not hold ready."""

import asyncio
from datetime import timedelta
from math import inf

import pytest
from worker_helpers import SOON, quick, reaches, statuses, take_away, taken, until

from outlast import Backoff, State
from outlast.core.run import LeaseHolder
from outlast.worker import dispatcher, prefetch

BACKLOG = 600
DEAD = LeaseHolder(instance_id="dead", boot_id="earlier")
PLENTY = 1000.0
"""So many seconds of work are held ready: what is asked here is what becomes of it."""


@pytest.mark.parametrize("delivery", ["lease", "linked"])
async def test_job_that_only_a_free_place_may_take_is_not_passed_over_for_others(
    path, delivery, monkeypatch
):
    """First in its queue, but lost once, or `linked`: neither is ever taken to lie in store."""
    monkeypatch.setattr(
        dispatcher, "MAX_PREFETCH_WAIT_S", inf
    )  # what is held ready stays, however slow
    done, holds_ready, go = [], asyncio.Event(), asyncio.Event()
    async with quick(path, concurrency=2, prefetch=50) as app:

        @app.job
        async def plain(n: int) -> None:
            if len(done) >= 20:
                holds_ready.set()
                await go.wait()
            await asyncio.sleep(0.005)
            done.append(n)

        @app.job(delivery=delivery, retry=Backoff(3))
        async def urgent() -> int:
            return len(done)

        first = await urgent.options(priority=5).enqueue() if delivery == "lease" else None
        if first:
            hour = timedelta(hours=1)  # over when work is held ready
            await app.store.claim(DEAD, queue="default", types=["urgent"], limit=1, lease=hour)
        await app.enqueue_many(plain.bind(n) for n in range(BACKLOG))
        async with app.worker():
            await holds_ready.wait()
            if first:
                await take_away(path, first)
                await reaches(first, State.QUEUED)
            else:
                first = await urgent.options(priority=5).enqueue()
            go.set()
            passed = await first.result(SOON)

    assert passed < BACKLOG / 2


async def test_jobs_that_turn_out_slow_are_released_to_an_idle_worker(path, rival, monkeypatch):
    """After many quick ones a worker holds a lot ready, and then they are of another kind."""
    monkeypatch.setattr(prefetch, "PREFETCH_TARGET_S", PLENTY)
    release, done = asyncio.Event(), []
    async with quick(path, concurrency=1, prefetch=50) as app:

        @app.job
        async def brief() -> None: ...

        for each, name in ((app, "first"), (rival, "idle")):

            @each.job(name="slow", retry=Backoff(2))
            async def slow(n: int, name: str = name) -> str:
                if name == "first":
                    await release.wait()
                done.append(n)
                return name

        async with app.worker():
            await asyncio.gather(*(each.wait(SOON) for each in await _enqueue(app, brief, 100)))
            slow = app.registry.get("slow")
            handles = await app.enqueue_many(slow.bind(n) for n in range(10))
            await taken(*handles)
            async with rival.worker():
                await until(lambda: len(done) >= 5)
                release.set()
                ran = [await handle.result(SOON) for handle in handles]
    ends = [await statuses(rival, handle) for handle in handles]
    failures = {job.failures for job in await rival.store.get([each.id for each in handles])}

    moved = [end[0] for end, name in zip(ends, ran, strict=True) if name == "idle"]
    assert (ran[0], ends[0]) == ("first", [("succeeded", None)])
    assert len(moved) >= 5
    assert set(moved) == {("released", "prefetched_too_many")}
    assert failures == {0}


async def test_nothing_waits_behind_one_that_does_not_end(path, rival, monkeypatch):
    """Quick as it would be: no place has come free for a while, and another worker is idle."""
    monkeypatch.setattr(prefetch, "PREFETCH_TARGET_S", PLENTY)
    release = asyncio.Event()
    for_all = {}
    async with quick(path, concurrency=1, prefetch=50) as app:
        for each, name in ((app, "first"), (rival, "idle")):

            @each.job(name="brief")
            async def brief(name: str = name) -> str:
                return name

            for_all[name] = brief

        @app.job
        async def block() -> None:
            await release.wait()

        async with app.worker():
            await (await for_all["first"].enqueue()).wait(SOON)
            brief = [for_all["first"].bind() for _ in range(5)]
            blocked, *handles = await app.enqueue_many([block.bind(), *brief])
            await taken(blocked, *handles)
            async with rival.worker():
                ran = [await handle.result(SOON) for handle in handles]
                still = (await blocked.read()).state
                release.set()
                await blocked.wait(SOON)

    assert (ran, still) == (["idle"] * 5, State.RUNNING)


async def _enqueue(app, job_type, many):
    return await app.enqueue_many(job_type.bind() for _ in range(many))

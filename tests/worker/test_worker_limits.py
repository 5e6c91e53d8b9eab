"""Queues with a limit or a pause, as a worker lives with them."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from worker_helpers import PATIENCE, SOON, quick

from outlast import State

MANY = 40
PATIENT = {"poll": "10m", "tick": "10m"}
"""No poll happens during a test: only a notification can wake the worker."""


class Crowd:
    """How many are in at once, and how many were at most."""

    def __init__(self):
        self.now, self.most, self.done = 0, 0, []

    def register(self, app):
        @app.job
        async def chapter(n: int) -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.001)
            self.done.append(n)
            self.now -= 1

        return chapter


class Claims:
    """Counts the claims of a store."""

    def __init__(self, store):
        self.count = 0
        self._claim = store.claim
        store.claim = self.claim

    async def claim(self, *args, **kwargs):
        self.count += 1
        return await self._claim(*args, **kwargs)


async def drain(handles):
    async with asyncio.timeout(PATIENCE):
        ends = [await handle.wait() for handle in handles]
    assert {job.state for job in ends} == {State.SUCCEEDED}


async def test_queue_of_one_drains_by_hints_alone_and_in_order(path):
    crowd = Crowd()
    async with quick(path, **PATIENT) as app:
        chapter, claims = crowd.register(app), Claims(app.store)
        await app.queues.save("default", concurrency=1)
        handles = await app.enqueue_many(chapter.bind(n) for n in range(MANY))

        async with app.worker(concurrency=5):
            await drain(handles)

    assert (crowd.most, crowd.done) == (1, list(range(MANY)))
    assert claims.count < 5 * MANY, "a full queue is not asked again and again"


@pytest.mark.parametrize("limit", [1, 3])
async def test_limit_holds_over_workers_with_stores_of_their_own(path, limit):
    crowd = Crowd()
    async with AsyncExitStack() as stack:
        apps = [await stack.enter_async_context(quick(path, **PATIENT)) for _ in range(3)]
        chapter, *_ = [crowd.register(app) for app in apps]
        await apps[0].queues.save("default", concurrency=limit)
        handles = await apps[0].enqueue_many(chapter.bind(n) for n in range(MANY))

        for n, app in enumerate(apps):
            await stack.enter_async_context(app.worker(concurrency=5, instance_id=f"w{n}"))
        await drain(handles)

    assert crowd.most == limit
    assert sorted(crowd.done) == list(range(MANY))


async def test_full_queue_keeps_no_other_from_its_jobs(path):
    crowd, go = Crowd(), asyncio.Event()
    async with quick(path, **PATIENT) as app:
        chapter = crowd.register(app)

        @app.job(queue="slow")
        async def waits() -> None:
            await go.wait()

        await app.queues.save("slow", concurrency=1)
        slow = [await waits.enqueue() for _ in range(5)]
        async with app.worker(queues=["slow", "default"], concurrency=2):
            quick_ones = await app.enqueue_many(chapter.bind(n) for n in range(MANY))
            await drain(quick_ones)
            running = [job.state for job in [await handle.read() for handle in slow]]
            go.set()
            await drain(slow)

    assert running == [State.RUNNING] + [State.QUEUED] * 4


async def test_paused_queue_starts_nothing_and_resumes_at_once(path):
    crowd = Crowd()
    async with quick(path, **PATIENT) as app:
        chapter = crowd.register(app)
        await app.queues.pause("default", reason="deploy")
        handles = await app.enqueue_many(chapter.bind(n) for n in range(3))

        async with app.worker() as worker:
            await worker.drained()
            before = list(crowd.done)
            assert await app.queues.resume("default")
            await drain(handles)

    assert (before, sorted(crowd.done)) == ([], [0, 1, 2])


async def test_pause_with_an_end_resumes_by_itself(path):
    crowd = Crowd()
    async with quick(path) as app:
        chapter = crowd.register(app)
        await app.queues.pause("default", duration="200ms")
        handle = await chapter.enqueue(1)

        async with app.worker():
            await handle.wait(SOON)
        assert (await app.queues.get("default")).pause is None
        run = (await app.runs(handle.id))[0]
        paused = (await app.store.events(None))[0]

    assert paused.detail is not None
    assert run.started_at.isoformat() >= paused.detail


async def test_raised_limit_is_used_at_once(path):
    crowd, go = Crowd(), asyncio.Event()
    async with quick(path, **PATIENT) as app:

        @app.job
        async def waits() -> None:
            await go.wait()

        chapter = crowd.register(app)
        await app.queues.save("default", concurrency=1)
        first, second = await waits.enqueue(), await chapter.enqueue(1)
        async with app.worker() as worker:
            await app.queues.save("default", concurrency=2)
            await drain([second])
            assert not await _is_over(first)
            go.set()
            await worker.drained()


async def _is_over(handle):
    return (await handle.read()).is_final

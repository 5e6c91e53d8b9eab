"""How many at once, in which order, and several workers side by side."""

import asyncio
import threading
from collections import Counter
from contextlib import ExitStack

import pytest
from worker_helpers import (
    AT_ONCE,
    SOON,
    all_slots_work,
    locked,
    query,
    quick,
    shaky,
    statuses,
    until,
)

from outlast import Run, State


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
@pytest.mark.parametrize("concurrency", [1, 3, 10])
async def test_never_more_than_that_many_at_once(app, concurrency, thread):
    lock, running, most = threading.Lock(), 0, 0

    def enter(by):
        nonlocal running, most
        with lock:
            running += by
            most = max(most, running)

    if thread:

        @app.job(name="work")
        def work() -> None:
            enter(+1)
            threading.Event().wait(0.003)
            enter(-1)

    else:

        @app.job(name="work")
        async def work() -> None:
            enter(+1)
            await asyncio.sleep(0.003)
            enter(-1)

    handles = await app.enqueue_many(work.bind() for _ in range(60))
    async with app.worker(concurrency=concurrency):
        ends = [await handle.wait(SOON) for handle in handles]

        assert await all_slots_work(app, slots=concurrency)
    assert {job.state for job in ends} == {State.SUCCEEDED}
    assert 1 <= most <= concurrency


async def test_one_at_a_time_they_run_in_order(app):
    order = []

    @app.job
    async def first(n: int) -> None:
        order.append(n)

    @app.job
    def second(n: int) -> None:
        order.append(n)

    for n in range(40):
        kind = first if n % 3 else second
        await kind.options(priority=n % 4).enqueue(n)
    async with app.worker(concurrency=1) as worker:
        await worker.drained()

    assert order == sorted(range(40), key=lambda n: (-(n % 4), n))


async def test_two_workers_share_the_jobs_and_none_runs_twice(app, rival):
    ran = Counter()
    for each in (app, rival):

        @each.job(name="work")
        async def work(n: int) -> None:
            ran[n] += 1
            await asyncio.sleep(0)

    bound = [app.registry.get("work").bind(n) for n in range(300)]
    async with (
        app.worker(instance_id="one") as one,
        app.worker(instance_id="two") as two,
        rival.worker(instance_id="three") as three,
    ):
        handles = await app.enqueue_many(bound)
        ends = [await handle.wait(SOON) for handle in handles]

        assert [each.refused for each in (one, two, three)] == [0, 0, 0]
    assert {(job.state, job.failures) for job in ends} == {(State.SUCCEEDED, 0)}
    assert ran == Counter(range(300))


async def test_workers_started_at_the_same_moment_open_one_store(path):
    before = set(threading.enumerate())
    app = quick(path)

    @app.job
    async def work(n: int) -> int:
        return n

    async def serve(n):
        async with app.worker():
            return await (await work.enqueue(n)).result(SOON)

    async with app:
        results = await asyncio.gather(*(serve(n) for n in range(4)))

    assert results == [0, 1, 2, 3]
    started = set(threading.enumerate()) - before
    assert [each for each in started if "outlast-writer" in each.name] == []
    assert len(started) < 20


async def test_drained_means_that_everything_due_has_ended_durably(app, path):
    @app.job(retry=AT_ONCE)
    async def work(run: Run, n: int) -> None:
        await asyncio.sleep(0)
        if run.attempt == 1 and n % 5 == 0:
            raise ValueError("once")

    await app.enqueue_many(work.bind(n) for n in range(100))
    later = await work.options(delay="1h").enqueue(-1)
    async with app.worker() as worker:
        await worker.drained()
        left = query(path, "SELECT count(*) FROM outlast_open_runs")
        queued = query(path, "SELECT count(*) FROM outlast_waiting WHERE state = 'queued'")

        assert (left, queued, worker.unwritten) == ([(0,)], [(0,)], [])
    assert (await later.read()).state is State.SCHEDULED


async def test_drained_does_not_take_an_absent_store_for_an_empty_one(path):
    app, store = shaky(path, busy=0.02)

    @app.job
    async def work() -> int:
        return 1

    async with app:
        handle = await work.enqueue()
        with ExitStack() as lock:
            lock.enter_context(locked(path))
            async with app.worker() as worker:
                draining = asyncio.create_task(worker.drained())
                await until(lambda: store.errors["claim"] >= 3)
                assert not draining.done()
                lock.close()
                await draining

                assert (await handle.read()).state is State.SUCCEEDED


async def test_a_job_enqueued_by_a_job_runs_too(app):
    @app.job
    async def countdown(n: int) -> str | None:
        return (await countdown.enqueue(n - 1)).id if n else None

    async with app.worker(concurrency=1):
        handle, runs = await countdown.enqueue(20), 0
        while (following := await handle.result(SOON)) is not None:
            handle, runs = app.handle(following), runs + 1

    assert runs == 20


async def test_a_new_job_is_picked_up_at_once_not_at_the_next_poll(path):
    async with quick(path, poll="10m", tick="10m") as app:

        @app.job
        async def work() -> int:
            return 1

        async with app.worker() as worker:
            await worker.drained()
            handle = await work.enqueue()

            assert await handle.result(SOON) == 1


async def test_without_any_hint_polling_alone_finds_the_work(app):
    app._store.listen = lambda wake, *, topics: lambda: None

    @app.job(retry=AT_ONCE)
    async def work(run: Run) -> int:
        if run.attempt == 1:
            raise ValueError("once")
        return run.attempt

    async with app.worker() as worker:
        await worker.drained()
        handle = await work.enqueue()

        assert await handle.result(SOON) == 2
    assert [status for status, _ in await statuses(app, handle)] == ["failed", "succeeded"]

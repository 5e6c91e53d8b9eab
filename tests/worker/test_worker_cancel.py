"""Cancelling: what waits never runs, what runs is told at once, what has ended stays."""

import asyncio
import threading

import pytest
from worker_helpers import SOON, all_slots_work, kinds, quick, reaches, shaky, statuses, until

from outlast import Backoff, Run, Snooze, State


@pytest.mark.parametrize("kind", ["queued", "scheduled", "retry_wait"])
async def test_a_waiting_job_that_is_cancelled_never_runs(app, kind):
    calls = []

    @app.job(retry=Backoff(5, base="1h", jitter=False))
    async def send() -> None:
        calls.append(1)
        raise ValueError("so that it waits")

    handle = await send.options(delay="1h" if kind == "scheduled" else "0s").enqueue()
    if kind == "retry_wait":
        async with app.worker():
            await reaches(handle, State.RETRY_WAIT)
    state = await handle.cancel("not wanted")
    async with app.worker() as worker:
        await worker.drained()
        job = await handle.wait(SOON)

    assert (state, job.state, job.reason) == (State.CANCELLED, State.CANCELLED, "not wanted")
    assert len(calls) == (1 if kind == "retry_wait" else 0)


async def test_a_running_async_job_is_stopped_at_once_not_at_the_next_renewal(path):
    started, cleaned = asyncio.Event(), []
    async with quick(path, lease="30m", renew="10m", poll="10m", tick="10m") as app:

        @app.job
        async def endless() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.append(1)

        handle = await endless.enqueue()
        async with app.worker():
            await started.wait()
            state = await handle.cancel()
            job = await handle.wait(SOON)

    assert (state, job.state, job.reason) == (State.RUNNING, State.CANCELLED, "cancel_requested")
    assert (job.failures, cleaned) == (0, [1])


async def test_a_request_from_another_process_arrives_with_the_next_renewal(path, app, rival):
    started = asyncio.Event()
    app.settings = app.settings.with_(renew="50ms")

    @app.job
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    async with app.worker():
        handle = await endless.enqueue()
        await started.wait()
        await rival.cancel(handle.id)
        job = await handle.wait(SOON)

    assert job.state is State.CANCELLED
    assert await statuses(app, handle) == [("cancelled", "cancel_requested")]
    assert await kinds(app, handle) == ["cancel_requested", "cancelled"]


async def test_a_thread_sees_that_it_should_stop(app):
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.job
    def endless(run: Run) -> None:
        loop.call_soon_threadsafe(started.set)
        while not run.cancelled:
            threading.Event().wait(0.002)

    async with app.worker():
        handle = await endless.enqueue()
        await started.wait()
        await handle.cancel()
        job = await handle.wait(SOON)

    assert (job.state, job.failures) == (State.CANCELLED, 0)
    assert await statuses(app, handle) == [("cancelled", "cancel_requested")]


@pytest.mark.parametrize("result", ["done", None])
async def test_a_job_that_finishes_first_wins(app, result):
    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @app.job
    def busy() -> str | None:
        loop.call_soon_threadsafe(started.set)
        release.wait(100)
        return result

    async with app.worker():
        handle = await busy.enqueue()
        await started.wait()
        await handle.cancel()
        release.set()
        job = await handle.wait(SOON)

    assert job.state is State.SUCCEEDED
    assert await handle.result() == result


@pytest.mark.parametrize("delivery", ["lease", "linked"])
@pytest.mark.parametrize("end", ["raise", "snooze"])
async def test_a_cancelled_job_is_not_tried_again(app, end, delivery):
    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    if (end, delivery) == ("snooze", "linked"):
        end = "raise"

    @app.job(delivery=delivery, retry=Backoff(5, base="1ms"))
    def busy() -> Snooze:
        loop.call_soon_threadsafe(started.set)
        release.wait(100)
        if end == "raise":
            raise ValueError("fails after it was asked to stop")
        return Snooze("1ms")

    async with app.worker():
        handle = await busy.enqueue()
        await started.wait()
        await handle.cancel()
        release.set()
        job = await handle.wait(SOON)

    assert (job.id, job.state) == (handle.id, State.CANCELLED)
    assert len(await app.runs(handle.id)) == 1
    assert len(await app._store.chain(handle.id)) == 1


async def test_cleaning_up_is_not_cancelled_again_by_every_renewal(path):
    started, cleaned = asyncio.Event(), []
    app, store = shaky(path, renew="20ms")

    @app.job
    async def tidy() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            renewals = store.done["renew"] + 3
            await until(lambda: store.done["renew"] >= renewals)
            cleaned.append(1)

    async with app, app.worker():
        handle = await tidy.enqueue()
        await started.wait()
        await handle.cancel()
        await handle.cancel()
        job = await handle.wait(SOON)

        assert await all_slots_work(app)
    assert cleaned == [1]
    assert job.state is State.CANCELLED


async def test_a_prefetched_job_that_is_cancelled_before_it_starts_never_runs(path, hoarding):
    started, release, calls = asyncio.Event(), asyncio.Event(), []
    app, store = shaky(path)

    @app.job
    async def brief() -> None: ...

    @app.job
    async def block() -> None:
        started.set()
        await release.wait()

    @app.job
    async def victim() -> None:
        calls.append(1)

    async with app, app.worker(concurrency=1):
        await (await brief.enqueue()).wait(SOON)
        await block.enqueue()
        await started.wait()
        handle = await victim.enqueue()
        await reaches(handle, State.RUNNING)
        state = await handle.cancel()
        received = store.done["renew"] + 2
        await until(lambda: store.done["renew"] >= received)
        release.set()
        job = await handle.wait(SOON)

        assert await all_slots_work(app, slots=1)
    assert (state, job.state, calls) == (State.RUNNING, State.CANCELLED, [])


async def test_many_cancels_at_once_stop_exactly_those(app):
    release = asyncio.Event()

    @app.job
    async def wait(n: int) -> int:
        await release.wait()
        return n

    async with app.worker(concurrency=20):
        handles = await app.enqueue_many(wait.bind(n) for n in range(20))
        await asyncio.gather(*(reaches(handle, State.RUNNING) for handle in handles))
        await asyncio.gather(*(handle.cancel() for handle in handles[::2]))
        cancelled = [await handle.wait(SOON) for handle in handles[::2]]
        release.set()
        rest = [await handle.result(SOON) for handle in handles[1::2]]

        assert await all_slots_work(app, slots=20)
    assert {job.state for job in cancelled} == {State.CANCELLED}
    assert rest == list(range(1, 20, 2))

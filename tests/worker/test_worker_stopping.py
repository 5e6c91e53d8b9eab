"""Stopping: what runs may end, the rest is handed back, nothing is lost or charged."""

import asyncio
import threading

import pytest
from worker_helpers import (
    PATIENCE,
    SOON,
    all_slots_work,
    kinds,
    quick,
    reaches,
    shaky,
    statuses,
    until,
)

from outlast import Backoff, Run, State


async def test_running_jobs_end_within_the_grace(app):
    release = threading.Event()

    @app.job
    async def work(n: int) -> int:
        await asyncio.to_thread(release.wait, PATIENCE)
        return n

    @app.job
    def work_in_thread(n: int) -> int:
        release.wait(PATIENCE)
        return n

    handles = [await work.enqueue(1), await work_in_thread.enqueue(2)]
    async with app.worker(concurrency=2) as worker:
        await asyncio.gather(*(reaches(handle, State.RUNNING) for handle in handles))
        stopping = asyncio.create_task(worker.stop())
        await until(lambda: worker._engine._pool._wait_timeout is not None)  # it lets them end
        release.set()
        await stopping

    assert [(await handle.read()).state for handle in handles] == [State.SUCCEEDED] * 2
    assert [await handle.result() for handle in handles] == [1, 2]


async def test_stopping_worker_says_that_it_claims_no_more(app):
    release = asyncio.Event()

    @app.job
    async def work() -> None:
        await release.wait()

    running = await work.enqueue()
    async with app.worker(concurrency=1) as worker:
        await reaches(running, State.RUNNING)
        waiting = await work.enqueue()
        stopping = asyncio.create_task(worker.stop())

        async def is_told() -> bool:
            return [each.is_stopping for each in await app.store.workers()] == [True]

        await until(is_told)
        explanation = await app.explain(waiting.id)
        release.set()
        await stopping

    assert explanation.stop.code == "worker"
    assert "stopping" in explanation.stop.text


async def test_jobs_of_a_claim_under_way_when_the_worker_stops_are_not_forgotten(app, monkeypatch):
    claimed, go_on = asyncio.Event(), asyncio.Event()
    claim = app.store.claim

    async def slow_claim(*args, **options):
        claims = await claim(*args, **options)
        if claims:
            claimed.set()
            await go_on.wait()  # the answer of the store is on its way
        return claims

    @app.job
    async def work() -> None: ...

    monkeypatch.setattr(app.store, "claim", slow_claim)
    async with app.worker() as worker:
        handle = await work.enqueue()
        await claimed.wait()
        stopping = asyncio.create_task(worker.stop())
        await until(lambda: worker._engine._dispatcher._stopping)
        go_on.set()
        await stopping

    assert (await handle.read()).state in {State.QUEUED, State.SUCCEEDED}
    assert await statuses(app, handle) in ([("released", "shutdown")], [("succeeded", None)])


@pytest.mark.parametrize("kind", ["async", "thread that looks", "thread that does not"])
async def test_past_the_grace_each_delivery_has_its_way(path, slot, kind):
    release, running = threading.Event(), []
    async with quick(path, grace="100ms", concurrency=3) as app:

        async def stay(run: Run) -> None:
            running.append(run.token)
            await asyncio.Event().wait()

        def stay_in_thread(run: Run) -> str:
            running.append(run.token)
            while not release.wait(0.005) and not (run.cancelled and kind.endswith("looks")):
                pass
            return "late"

        def looks(run: Run) -> None:
            stay_in_thread(run)

        handler = {"async": stay, "thread that looks": looks}.get(kind, stay_in_thread)
        types = [
            app.job(name="leased", retry=Backoff(3))(handler),
            app.job(name="chained", delivery="linked", retry=Backoff(3))(handler),
            app.job(name="once", delivery="once")(handler),
        ]
        handles = [await each.options(slot=slot).enqueue() for each in types]
        async with app.worker():
            await until(lambda: len(running) == 3)
        leased, chained, once = [await handle.read() for handle in handles]
        release.set()

        assert (leased.state, leased.failures) == (State.QUEUED, 0)
        assert (chained.state, chained.reason) == (State.FAILED, "shutdown")
        assert (once.state, once.reason) == (State.FAILED, "shutdown")
        assert await statuses(app, handles[0]) == [("released", "shutdown")]
        assert await statuses(app, handles[1]) == [("lost", "shutdown")]
        successor = (await app._store.chain(chained.id))[-1]
        assert (successor.retry_of, successor.state) == (chained.id, State.QUEUED)
        assert running == [1, 1, 1]


async def test_what_was_taken_but_not_started_is_handed_back_at_once(app, rival, hoarding):
    started, release, ran = asyncio.Event(), asyncio.Event(), []

    @app.job
    async def brief(n: int) -> None:
        ran.append(n)

    @app.job
    async def block() -> str:
        started.set()
        await release.wait()
        return "ended"

    async with app.worker(concurrency=1) as worker:
        await (await brief.enqueue(-1)).wait(SOON)
        blocking = await block.enqueue()
        await started.wait()
        handles = await app.enqueue_many(brief.bind(n) for n in range(30))
        await reaches(handles[0], State.RUNNING)
        stopping = asyncio.create_task(worker.stop())
        await asyncio.gather(*(reaches(handle, State.QUEUED) for handle in handles))
        before = [await handle.read() for handle in handles]
        release.set()
        await stopping

    assert await blocking.result() == "ended"
    assert ran == [-1]
    assert {(job.failures, job.losses) for job in before} == {(0, 0)}
    async with app.worker():
        ends = [await handle.wait(SOON) for handle in handles]
    assert {job.state for job in ends} == {State.SUCCEEDED}
    assert sorted(ran) == list(range(-1, 30))


@pytest.mark.parametrize("how", ["inside", "after", "at once", "never started"])
async def test_stopping_twice_is_fine(app, how):
    @app.job
    async def work() -> int:
        return 1

    worker = app.worker()
    if how == "never started":
        await worker.stop()
        return
    async with worker:
        assert await (await work.enqueue()).result(SOON) == 1
        if how == "inside":
            await worker.stop()
        if how == "at once":
            await asyncio.gather(worker.stop(), worker.stop())
    if how == "after":
        await worker.stop()

    async with app.worker():
        assert await (await work.enqueue()).result(SOON) == 1


async def test_stopping_again_does_not_hand_back_what_was_let_go(path):
    release, started = threading.Event(), threading.Event()
    async with quick(path, grace="20ms") as app:

        @app.job
        def stuck() -> None:
            started.set()
            release.wait(PATIENCE)

        handle = await stuck.enqueue()
        async with app.worker() as worker:
            await asyncio.to_thread(started.wait)
            await worker.stop()
        release.set()
        await stuck.options(delay="1h").enqueue()  # behind whatever else is being written

        assert await kinds(app, handle) == ["released"]
        assert await statuses(app, handle) == [("released", "shutdown")]
        assert worker.refused == 0


async def test_a_worker_started_again_goes_on(app):
    @app.job
    async def work(n: int) -> int:
        return n

    worker = app.worker()
    results = []
    for n in range(3):
        handle = await work.enqueue(n)
        async with worker:
            results.append(await handle.result(SOON))

            assert await all_slots_work(app)
    assert results == [0, 1, 2]


async def test_an_end_that_was_never_written_is_not_held_for_ever_by_the_next_start(path):
    app, store = shaky(path, lease="400ms", renew="50ms", grace="100ms")

    @app.job(retry=Backoff(50, base="1ms"))
    async def work(run: Run) -> int:
        if run.token == 1:
            store.broken = {"apply"}
        return run.token

    async with app:
        worker = app.worker()
        handle = await work.enqueue()
        async with worker:
            await until(lambda: worker.unwritten == [handle.id])
        store.broken = set()
        async with worker:
            result = await handle.result(SOON)

        *lost, last = await statuses(app, handle)
        assert (set(lost), last) == ({("lost", "lease_expired")}, ("succeeded", None))
        assert result == len(lost) + 1


async def test_a_cancelled_block_stops_its_worker_in_order(app):
    started, release = asyncio.Event(), asyncio.Event()

    @app.job
    async def work() -> str:
        started.set()
        await release.wait()
        return "ended"

    worker = app.worker()

    async def serve():
        async with worker:
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    handle = await work.enqueue()
    await started.wait()
    serving.cancel()
    await until(lambda: worker._stopping is not None)
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await serving

    assert await handle.result(SOON) == "ended"


async def test_an_error_in_the_block_comes_out_after_an_orderly_stop(app):
    started, worker = asyncio.Event(), None

    @app.job
    async def work() -> str:
        started.set()
        await until(lambda: worker._stopping is not None)
        return "ended"

    handle, worker = await work.enqueue(), app.worker()

    async def fail():
        async with worker:
            await started.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    assert (await handle.read()).state is State.SUCCEEDED

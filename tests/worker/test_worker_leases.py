"""Leases: kept while the worker lives, lost for good once another has the job."""

import asyncio
import threading

import pytest
from worker_helpers import (
    PATIENCE,
    SOON,
    effects,
    kinds,
    live_on,
    make_effects,
    quick,
    reaches,
    shaky,
    statuses,
    take_away,
    until,
)

from outlast import Backoff, Run, Skip, Snooze, State
from outlast.testing.clock import FakeClock


@pytest.fixture
def clock():
    """Moved by the test alone: a lease lapses when it says so, not when the machine is busy."""
    return FakeClock()


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_a_long_run_is_not_started_a_second_time(path, clock, thread):
    release, starts = threading.Event(), []
    app, store = shaky(path, clock=clock, renew="20ms")

    if thread:

        @app.job(name="long")
        def long() -> None:
            starts.append(1)
            release.wait(PATIENCE)

    else:

        @app.job(name="long")
        async def long() -> None:
            starts.append(1)
            await asyncio.to_thread(release.wait, PATIENCE)

    async with app:
        async with app.worker(), app.worker():
            handle = await long.enqueue()
            await live_on(store, clock)
            release.set()
            await handle.wait(SOON)

        assert starts == [1]
        assert await statuses(app, handle) == [("succeeded", None)]


async def test_prefetched_jobs_are_held_while_they_wait_for_many_leases(path, clock, hoarding):
    release, started = asyncio.Event(), asyncio.Event()
    app, store = shaky(path, clock=clock, renew="20ms")
    rival, _ = shaky(path, clock=clock)
    for each in (app, rival):

        @each.job(name="brief")
        async def brief(run: Run) -> int:
            return run.token

    @app.job
    async def block() -> None:
        started.set()
        await release.wait()

    async with app, rival, app.worker(concurrency=1):
        brief = app.registry.get("brief")
        await (await brief.enqueue()).wait(SOON)
        await block.enqueue()
        await started.wait()
        handles = await app.enqueue_many(brief.bind() for _ in range(10))
        await asyncio.gather(*(reaches(handle, State.RUNNING) for handle in handles))
        async with rival.worker():
            await live_on(store, clock)
            release.set()
            tokens = [await handle.result(SOON) for handle in handles]

    assert tokens == [1] * 10


async def test_two_renewals_that_fail_do_not_lose_the_lease(path, clock):
    app, store = shaky(path, clock=clock, lease="60s", renew="20ms")
    rival, _ = shaky(path, clock=clock)
    store.times = {"renew": 2}
    release, starts = asyncio.Event(), []
    for each in (app, rival):

        @each.job(name="long")
        async def long(run: Run) -> int:
            starts.append(run.token)
            await release.wait()
            return run.token

    async with app, rival, app.worker():
        handle = await app.registry.get("long").enqueue()
        await reaches(handle, State.RUNNING)
        store.broken = {"renew"}
        async with rival.worker():
            for failed in (1, 2):
                await until(lambda failed=failed: store.failed["renew"] >= failed)
                clock.advance("20s")
            await live_on(store, clock)
            release.set()
            result = await handle.result(SOON)

    assert store.failed["renew"] == 2
    assert (result, starts) == (1, [1])


ENDS = {
    "result": lambda: "from the first",
    "error": lambda: 1 / 0,
    "snooze": lambda: Snooze("1ms"),
    "skip": lambda: Skip("nothing"),
}


@pytest.mark.parametrize("in_transaction", [False, True], ids=["plain", "transaction"])
@pytest.mark.parametrize("end", ENDS)
async def test_whatever_a_former_holder_writes_is_refused(path, rival, end, in_transaction):
    """Its renewals do not get through, as if it had been frozen or cut off, and it goes on."""
    app, store = shaky(path)
    release, tokens = asyncio.Event(), []

    @app.job(name="task", retry=Backoff(3, base="1ms"))
    async def first(run: Run) -> str | Snooze | Skip:
        tokens.append(run.token)
        await release.wait()
        if in_transaction:
            async with run.transaction() as conn:
                conn.execute("INSERT INTO effects VALUES ('first', ?)", (run.token,))
        return ENDS[end]()

    @rival.job(name="task", retry=Backoff(3, base="1ms"))
    async def second(run: Run) -> str:
        tokens.append(run.token)
        return "from the second"

    async with app, app.worker(concurrency=1) as worker:
        make_effects(path)
        handle = await first.enqueue()
        await reaches(handle, State.RUNNING)
        store.broken = {"renew", "claim"}
        async with rival.worker():
            await take_away(path, handle)
            result = await handle.result(SOON)
            before = await handle.read()
            release.set()
            await until(lambda: worker.refused > 0)

        assert worker.refused == 1
        await until(lambda: worker.unwritten == [])
    assert (result, tokens) == ("from the second", [1, 2])
    assert await rival.get(handle.id) == before
    assert await rival.handle(handle.id).result() == "from the second"
    assert await statuses(rival, handle) == [("lost", "lease_expired"), ("succeeded", None)]
    assert effects(path) == []
    assert (await kinds(rival, handle)).count("late_write_refused") == 1


async def test_a_handler_whose_lease_is_lost_is_told_and_its_worker_goes_on(path, rival):
    app, store = shaky(path)
    started, reported = asyncio.Event(), []

    @app.job(retry=Backoff(3, base="1ms"))
    async def task(run: Run) -> int:
        started.set()
        try:
            if run.token == 1:
                await asyncio.Event().wait()
        finally:
            reported.append((run.token, run.cancelled))
        return run.token

    async with app, app.worker(concurrency=1) as worker, rival.worker(types=["roll_call"]):
        handle = await task.enqueue()
        await started.wait()
        store.broken = {"renew"}
        await take_away(path, handle)
        await reaches(handle, State.QUEUED)
        store.broken = set()
        result = await handle.result(SOON)

        assert worker.refused == 1
    assert (result, reported) == (2, [(1, True), (2, False)])


async def test_a_renewal_that_crosses_the_end_of_a_run_does_no_harm_to_the_next(path):
    """A renewal sent before the end is written comes back as not held; the retry is another run."""
    calls = []
    async with quick(path, renew="1ms") as app:

        @app.job(retry=Backoff(20, base="1ms", jitter=False, cap="1ms"))
        async def fail(n: int) -> None:
            calls.append(n)
            raise ValueError("again")

        async with app.worker(concurrency=10) as worker:
            handles = await app.enqueue_many(fail.bind(n) for n in range(20))
            ends = [await handle.wait(SOON) for handle in handles]

            assert worker.refused == 0
    assert {(job.state, job.failures) for job in ends} == {(State.DEAD_LETTER, 20)}
    assert len(calls) == 400


async def test_an_end_that_crosses_a_renewal_is_not_reported_as_a_lost_lease(path, caplog):
    async with quick(path, renew="1ms") as app:

        @app.job
        async def fine(n: int) -> int:
            await asyncio.sleep(0)
            return n

        async with app.worker(concurrency=10):
            handles = await app.enqueue_many(fine.bind(n) for n in range(200))
            results = [await handle.result(SOON) for handle in handles]

    assert results == list(range(200))
    assert "lease lost" not in caplog.text


async def test_a_job_that_was_lost_while_its_end_was_unwritten_can_come_back(path, rival):
    """Ended here, taken away before the store heard of it, and then claimed here again."""
    app, store = shaky(path, renew="20ms")
    tokens = []

    @app.job(retry=Backoff(3, base="1ms"))
    async def task(run: Run) -> int:
        tokens.append(run.token)
        if run.token == 1:
            store.broken = {"apply", "claim", "renew"}
        return run.token

    async with app, app.worker(concurrency=1) as worker, rival.worker(types=["roll_call"]):
        handle = await task.enqueue()
        await until(lambda: worker.unwritten == [handle.id])
        await take_away(path, handle)
        await reaches(handle, State.QUEUED)
        store.broken = {"apply", "claim"}
        received = store.done["renew"] + 2
        await until(lambda: store.done["renew"] >= received)
        store.broken = set()
        result = await handle.result(SOON)

        await until(lambda: worker.refused == 1)
    assert (result, tokens) == (2, [1, 2])

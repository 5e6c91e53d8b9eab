"""max_runtime: a run that takes too long is lost, and its delivery says what follows."""

import asyncio
import threading
from datetime import timedelta

import pytest
from worker_helpers import (
    PATIENCE,
    SOON,
    all_slots_work,
    kinds,
    live_on,
    query,
    run_out_of_time,
    shaky,
    statuses,
    until,
)

from outlast import Backoff, LeaseLost, Run, State
from outlast.testing.clock import FakeClock
from outlast.worker import deadlines

TWICE = Backoff(2, base="1ms")
OFTEN = Backoff(50, base="1ms")
"""A run that a busy machine keeps beyond its limit is lost too: it counts, and changes nothing."""
NEVER = asyncio.Event


@pytest.fixture
def unstoppable(monkeypatch):
    """The worker gives a handler past its limit all the time it wants, so its lease expires."""
    monkeypatch.setattr(deadlines, "STOP_TIMEOUT_S", PATIENCE)


async def test_an_async_handler_over_its_time_is_cancelled_and_its_job_tried_again(app):
    started, ended = asyncio.Event(), []

    @app.job(max_runtime="1h", retry=TWICE)
    async def slow(run: Run) -> str:
        started.set()
        try:
            if run.attempt == 1:
                await NEVER().wait()
        finally:
            ended.append(run.attempt)
        return "second time"

    async with app.worker() as worker:
        handle = await slow.enqueue()
        await started.wait()
        run_out_of_time(worker)
        result = await handle.result(SOON)

        assert await all_slots_work(app)
    assert (result, ended) == ("second time", [1, 2])
    assert await statuses(app, handle) == [("lost", "timeout"), ("succeeded", None)]
    assert (await handle.read()).failures == 1
    assert await kinds(app, handle) == ["requeued"]


@pytest.mark.parametrize(
    ("delivery", "states"),
    [
        ("lease", [State.DEAD_LETTER]),
        ("linked", [State.FAILED, State.DEAD_LETTER]),
        ("once", [State.FAILED]),
    ],
)
@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_what_follows_a_timeout_its_delivery_says(app, slot, delivery, states, thread):
    settings = {} if delivery == "once" else {"retry": TWICE}
    runs = []

    if thread:

        @app.job(name="slow", delivery=delivery, max_runtime="30ms", **settings)
        def slow(run: Run) -> None:
            runs.append(run.id)
            while not run.cancelled:
                threading.Event().wait(0.002)

    else:

        @app.job(name="slow", delivery=delivery, max_runtime="30ms", **settings)
        async def slow(run: Run) -> None:
            runs.append(run.id)
            await NEVER().wait()

    async with app.worker():
        handle = await slow.options(slot=slot).enqueue()
        job = await handle.wait(SOON)

        assert await all_slots_work(app)
    chain = await app._store.chain(handle.id)
    assert [each.state for each in chain] == states
    assert (job.reason, job.failures, job.losses) == ("timeout", len(runs), len(runs))
    assert len(runs) == (1 if delivery == "once" else 2)


async def test_what_a_handler_returns_past_its_time_does_not_count(app):
    @app.job(max_runtime="30ms", retry=Backoff(1))
    async def defiant() -> str:
        try:
            await NEVER().wait()
        except asyncio.CancelledError:
            return "too late"

    async with app.worker():
        handle = await defiant.enqueue()
        job = await handle.wait(SOON)

        assert await all_slots_work(app)
    assert (job.state, job.reason) == (State.DEAD_LETTER, "timeout")


@pytest.mark.usefixtures("unstoppable")
async def test_a_thread_that_does_not_stop_loses_its_lease_and_its_late_result(path, app, rival):
    release, started = threading.Event(), threading.Event()

    @app.job(name="stuck", max_runtime="50ms", retry=TWICE)
    def stuck() -> str:
        started.set()
        release.wait(PATIENCE)
        return "late"

    @rival.job(name="stuck", retry=TWICE)
    async def takes_over(run: Run) -> str:
        return f"attempt {run.attempt}"

    app.settings = app.settings.with_(lease="300ms", renew="50ms")
    async with app.worker(concurrency=1) as worker:
        handle = await stuck.enqueue()
        await asyncio.to_thread(started.wait, PATIENCE)
        async with rival.worker():
            result = await handle.result(SOON)
            release.set()
            await worker.drained()

        assert worker.refused == 1
        assert await all_slots_work(app, slots=1)
    assert result == "attempt 2"
    assert await statuses(app, handle) == [("lost", "lease_expired"), ("succeeded", None)]
    assert "late_write_refused" in await kinds(app, handle)
    assert await handle.result() == "attempt 2"


@pytest.mark.parametrize("delivery", ["lease", "linked"])
async def test_a_thread_that_does_not_stop_is_lost_at_its_limit_not_when_its_lease_expires(
    app, delivery
):
    """The lease outlasts the test: only the limit ends the run."""
    release, attempts = threading.Event(), []

    @app.job(max_runtime="1h", retry=TWICE, delivery=delivery)
    def stuck(run: Run) -> str:
        attempts.append(run)
        if len(attempts) == 1:
            release.wait(PATIENCE)
        return f"call {len(attempts)}"

    async with app.worker() as worker:
        handle = await stuck.enqueue()
        await until(lambda: bool(attempts))
        run_out_of_time(worker)
        result = await handle.result(SOON)
        with pytest.raises(LeaseLost):
            attempts[0].checkpoint()
        release.set()
        await worker.drained()

        assert await all_slots_work(app)
    assert result == "call 2"
    assert (await statuses(app, handle))[0] == ("lost", "timeout")


async def test_a_worker_stops_beside_a_thread_that_was_lost_at_its_limit(app):
    release, started = threading.Event(), threading.Event()

    @app.job(max_runtime="1h", retry=Backoff(1))
    def stuck() -> None:
        started.set()
        release.wait(PATIENCE)

    app.settings = app.settings.with_(grace="1ms")
    async with app.worker() as worker:
        handle = await stuck.enqueue()
        await asyncio.to_thread(started.wait, PATIENCE)
        run_out_of_time(worker)
        job = await handle.wait(SOON)

    release.set()
    assert (job.state, job.reason) == (State.DEAD_LETTER, "timeout")
    assert worker.refused == 0
    assert await statuses(app, handle) == [("lost", "timeout")]


async def test_effects_of_a_thread_that_was_lost_at_its_limit_are_rolled_back(app, path):
    release, started = threading.Event(), threading.Event()
    query(path, "CREATE TABLE effects (name TEXT)")

    @app.job(max_runtime="1h", retry=Backoff(1))
    def stuck(run: Run) -> None:
        started.set()
        release.wait(PATIENCE)
        with run.transaction() as conn:
            conn.execute("INSERT INTO effects VALUES ('late')")

    async with app.worker() as worker:
        handle = await stuck.enqueue()
        await asyncio.to_thread(started.wait, PATIENCE)
        run_out_of_time(worker)
        await handle.wait(SOON)
        release.set()
        assert await all_slots_work(app)

    assert query(path, "SELECT name FROM effects") == []


async def test_a_once_thread_past_its_limit_keeps_its_lease_and_no_other_run_starts(path, slot):
    """Its handler cannot be stopped, so the job of the next slot waits for its end."""
    release, starts = threading.Event(), []
    clock = FakeClock()
    app, store = shaky(path, clock=clock)

    @app.job(delivery="once", max_runtime="1h")
    def stuck(run: Run) -> str:
        starts.append(run.job_id)
        if len(starts) == 1:
            release.wait(PATIENCE)
        return "late"

    async with app, app.worker() as worker:
        first = await stuck.options(slot=slot).enqueue()
        await until(lambda: bool(starts))
        run_out_of_time(worker)
        second = await stuck.options(slot=slot + timedelta(hours=1)).enqueue()
        await live_on(store, clock)
        running = [(await each.read()).state for each in (first, second)]
        release.set()
        await second.wait(SOON)

        assert running == [State.RUNNING, State.QUEUED]
        assert await statuses(app, first) == [("lost", "timeout")]
    assert starts == [first.id, second.id]


@pytest.mark.usefixtures("unstoppable")
async def test_one_worker_may_run_a_job_again_while_its_first_thread_is_still_stuck(app):
    release = threading.Event()

    @app.job(max_runtime="50ms", retry=OFTEN)
    def stuck(run: Run) -> str:
        if run.attempt == 1:
            release.wait(PATIENCE)
        return f"attempt {run.attempt}"

    app.settings = app.settings.with_(lease="300ms", renew="50ms")
    async with app.worker() as worker:
        handle = await stuck.enqueue()
        result = await handle.result(SOON)
        release.set()
        await worker.drained()

        assert worker.refused >= 1
        assert await all_slots_work(app)
    first, *others, last = await statuses(app, handle)
    assert result == f"attempt {len(others) + 2}"
    assert (first, last) == (("lost", "lease_expired"), ("succeeded", None))
    assert {status for status, _ in others} <= {"lost"}


@pytest.mark.usefixtures("unstoppable")
async def test_the_first_thread_may_also_end_while_the_second_run_is_under_way(app):
    release, second = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    finish = threading.Event()

    @app.job(max_runtime="500ms", retry=OFTEN)
    def stuck(run: Run) -> str:
        if run.attempt == 1:
            release.wait(PATIENCE)
        else:
            loop.call_soon_threadsafe(second.set)
            finish.wait(PATIENCE)
        return f"attempt {run.attempt}"

    app.settings = app.settings.with_(lease="300ms", renew="50ms")
    async with app.worker() as worker:
        handle = await stuck.enqueue()
        await asyncio.wait_for(second.wait(), PATIENCE)
        release.set()
        await until(lambda: worker.refused >= 1)
        finish.set()
        result = await handle.result(SOON)

        assert await all_slots_work(app)
    assert result == f"attempt {len(await statuses(app, handle))}" != "attempt 1"


async def test_a_limit_ends_with_its_run_and_does_not_hit_the_next(app):
    @app.job(max_runtime="60ms")
    async def brief() -> None: ...

    @app.job
    async def long() -> str:
        await asyncio.sleep(0.2)
        return "undisturbed"

    async with app.worker(concurrency=1):
        await app.enqueue_many(brief.bind() for _ in range(5))
        handle = await long.enqueue()
        result = await handle.result(SOON)

    assert result == "undisturbed"
    assert await statuses(app, handle) == [("succeeded", None)]


async def test_a_run_within_its_limit_may_take_many_leases(path):
    clock, release = FakeClock(), asyncio.Event()
    app, store = shaky(path, clock=clock, renew="20ms")

    @app.job(max_runtime="10m")
    async def long() -> str:
        await release.wait()
        return "in time"

    async with app:
        async with app.worker(), app.worker():
            handle = await long.enqueue()
            await live_on(store, clock)
            release.set()
            result = await handle.result(SOON)

        assert result == "in time"
        assert await statuses(app, handle) == [("succeeded", None)]

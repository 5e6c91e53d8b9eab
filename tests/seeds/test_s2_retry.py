"""S2: retries come by themselves, later each time, and end in a dead letter that is kept."""

from datetime import timedelta

import pytest

from outlast import Backoff, Outlast, Run
from outlast.core.event import Failed
from outlast.core.state import State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import SUCCEEDED, ended, job_of
from outlast.worker.maintenance.loop import Maintenance

from .app_helpers import drain, jobs_of
from .timeouts import SOON


async def live_out(app: Outlast, clock: FakeClock, handle) -> list[timedelta]:
    """Let a job that always fails be tried until it ends; how long each retry had to wait."""
    waits = []
    while True:
        await drain(app)
        job = await handle.read()
        if job.is_final:
            return waits
        waits.append(job.available_at - clock.now())
        clock.advance(waits[-1])


@pytest.mark.req("S2-4.a")
async def test_a_transient_failure_is_executed_again_by_itself(
    app: Outlast, clock: FakeClock
) -> None:
    attempts = []

    @app.job(retry=Backoff(base="1m", jitter=False))
    def user_sync(run: Run) -> str:
        attempts.append((run.attempt, clock.now()))
        if run.attempt == 1:
            raise TimeoutError("no answer")
        return "synced"

    handle = await user_sync.enqueue()
    async with app.worker() as worker:  # the same one throughout, and nobody tells it anything
        await worker.drained()
        clock.advance("1m")
        assert await handle.result(timeout=SOON) == "synced"

    assert attempts == [(1, START), (2, START + timedelta(minutes=1))]


@pytest.mark.req("S2-4.b")
async def test_the_delay_doubles_with_each_attempt(app: Outlast, clock: FakeClock) -> None:
    @app.job(retry=Backoff(5, base="60s", jitter=False))
    def user_sync() -> None:
        raise TimeoutError("no answer")

    waits = await live_out(app, clock, await user_sync.enqueue())

    assert [wait.total_seconds() for wait in waits] == [60, 120, 240, 480]


@pytest.mark.req("S2-4.c")
async def test_the_next_run_is_due_exactly_a_delay_after_the_failure(
    app: Outlast, clock: FakeClock
) -> None:
    @app.job(retry=Backoff(base=timedelta(seconds=61, microseconds=3), jitter=False))
    def user_sync() -> None:
        clock.advance(timedelta(microseconds=999_999))
        raise TimeoutError("no answer")

    handle = await user_sync.enqueue()
    await drain(app)

    job = await handle.read()
    assert job.available_at == START + timedelta(seconds=62, microseconds=2)
    assert job.available_at == (await app.runs(handle.id))[-1].finished_at + timedelta(
        seconds=61, microseconds=3
    )


@pytest.mark.req("S2-4.e")
async def test_five_attempts_unless_set(app: Outlast, clock: FakeClock) -> None:
    calls = {"plain": 0, "set": 0, "each": 0}

    def failing(name: str) -> None:
        calls[name] += 1
        raise TimeoutError("no answer")

    plain = app.job(name="plain")(failing)
    two = app.job(name="set", retry=Backoff(2))(failing)
    for handle in (
        await plain.enqueue("plain"),
        await two.enqueue("set"),
        await plain.options(max_attempts=3).enqueue("each"),
    ):
        await live_out(app, clock, handle)

    assert calls == {"plain": 5, "set": 2, "each": 3}


@pytest.mark.req("S2-4.f")
async def test_after_the_last_attempt_it_is_a_dead_letter_and_never_called_again(
    app: Outlast, clock: FakeClock
) -> None:
    calls = []

    @app.job(retry=Backoff(5, base="1m", jitter=False))
    def user_sync(run: Run) -> None:
        calls.append(run.attempt)
        raise TimeoutError("no answer")

    handle = await user_sync.enqueue()
    await live_out(app, clock, handle)
    for _ in range(3):
        clock.advance("10d")
        await drain(app)

    job = await handle.read()
    assert calls == [1, 2, 3, 4, 5]
    assert (job.state, job.reason, job.failures) == (State.DEAD_LETTER, "attempts_exhausted", 5)
    assert [run.status for run in await app.runs(handle.id)] == ["failed"] * 5


@pytest.mark.req("S2-6.f")
async def test_shuffled_jobs_are_executed_by_their_time(app: Outlast, clock: FakeClock) -> None:
    ran = []

    @app.job
    async def user_sync(minute: int) -> None:
        ran.append(minute)

    for minute in (7, 2, 9, 0, 4, 8, 1):
        await user_sync.options(at=START + timedelta(minutes=minute)).enqueue(minute)
    clock.advance("1h")
    await drain(app, concurrency=1)

    assert ran == [0, 1, 2, 4, 7, 8, 9]


@pytest.mark.req("S2-7.c")
async def test_retention_leaves_dead_letters(store: SqliteStore, clock: FakeClock) -> None:
    done = await ended(store, SUCCEEDED)
    dead = await ended(store, Failed("no", permanent=True))
    before = (await job_of(store, dead), await store.runs(dead), await store.events(dead))
    clock.advance(timedelta(days=4000))

    gone = await Maintenance(store, lambda: dead).prune_once(timedelta(days=30), 100)

    assert gone == 1
    assert [job.id for job in await jobs_of(store)] == [dead]
    assert done != dead
    assert (await job_of(store, dead), await store.runs(dead), await store.events(dead)) == before

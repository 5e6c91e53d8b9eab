"""S2: the life of a leased job, step by step."""

import asyncio
from pathlib import Path

import pytest

from outlast import Backoff, Outlast
from outlast.clock import to_micros
from outlast.core.event import Failed
from outlast.core.state import State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    SECOND,
    SUCCEEDED,
    claim_order,
    ended,
    job_of,
    put,
    started,
    take_many,
)

from .app_helpers import drain
from .database_file import Sql, Witness, opened

MINUTE = Backoff(5, base="1m", jitter=False)


@pytest.mark.req("S2-2.c")
async def test_what_is_completed_is_never_claimed_again(
    app: Outlast, store: SqliteStore, clock: FakeClock
) -> None:
    ran = []

    @app.job
    def user_sync() -> None:
        ran.append(1)

    handle = await user_sync.enqueue()
    await drain(app)
    clock.advance("1d")
    await store.close()
    await store.open()
    await drain(app)

    assert (await handle.read()).state is State.SUCCEEDED
    assert ran == [1]
    assert await claim_order(store, types=["user_sync"]) == []


@pytest.mark.req("S2-2.d")
async def test_a_first_failure_waits_for_its_backoff_and_is_executed_again(
    app: Outlast, clock: FakeClock
) -> None:
    ran = []

    @app.job(retry=MINUTE)
    def user_sync() -> None:
        ran.append(clock.now())
        if len(ran) == 1:
            raise ConnectionError("busy")

    handle = await user_sync.enqueue()
    await drain(app)
    failed = await handle.read()
    clock.advance("59s")
    await drain(app)
    still = await handle.read()
    clock.advance("1s")
    await drain(app)

    assert (failed.state, still.state) == (State.RETRY_WAIT, State.RETRY_WAIT)
    assert failed.available_at > START
    assert (await handle.read()).state is State.SUCCEEDED
    assert ran == [START, START + 60 * SECOND]


@pytest.mark.req("S2-2.f")
async def test_a_cancelled_job_that_is_due_is_passed_over(app: Outlast, clock: FakeClock) -> None:
    ran = []

    @app.job
    def user_sync(user: str) -> None:
        ran.append(user)

    off = await user_sync.options(delay="1m").enqueue("off")
    await user_sync.options(delay="2m").enqueue("on")
    assert await off.cancel() is State.CANCELLED
    clock.advance("1h")
    await drain(app)

    assert ran == ["on"]
    assert (await off.read()).state is State.CANCELLED


@pytest.mark.req("S2-2.h")
async def test_a_claim_takes_what_is_due_and_nothing_else(
    store: SqliteStore, clock: FakeClock
) -> None:
    retried = await ended(store, Failed("no", delay=SECOND))
    not_yet = await ended(store, Failed("no", delay=HOUR))
    await ended(store, SUCCEEDED)
    await ended(store, Failed("no", permanent=True))
    await started(store)
    due, later = await put(store, delay=2 * SECOND), await put(store, delay=HOUR)
    now = await put(store)

    clock.advance("2s")
    claimed = await claim_order(store)

    assert claimed == [now, retried, due]
    assert [(await job_of(store, each)).state for each in (not_yet, later)] == [
        "retry_wait",
        "scheduled",
    ]


@pytest.mark.req("S2-2.j")
async def test_of_two_workers_at_once_one_wins_and_the_other_goes_on(
    store: SqliteStore, path: Path, clock: FakeClock
) -> None:
    other = await opened(path, clock=clock)
    for _ in range(10):
        job_id = await put(store)

        mine, theirs = await asyncio.gather(
            take_many(store, holder="worker-1"), take_many(other, holder="worker-2")
        )

        assert [claim.id for claim in (*mine, *theirs)] == [job_id]
        winner = "worker-1" if mine else "worker-2"
        assert (await job_of(store, job_id)).holder == winner
    following = [await put(store), await put(store)]
    won = [*await take_many(store, limit=1), *await take_many(other, limit=1)]
    await other.close()

    assert [claim.id for claim in won] == following


@pytest.mark.req("S2-2.l")
async def test_completed_and_its_moment_appear_in_one_commit(path: Path) -> None:
    witness = Witness(path, "SELECT state, at FROM outlast_ends")
    clock = FakeClock()
    async with Outlast(SqliteStore(path, clock=clock, probe=witness), poll="5ms") as app:

        @app.job
        def user_sync() -> None:
            clock.advance("7s")

        handle = await user_sync.enqueue()
        await drain(app)
        job = await handle.read()

    assert witness.seen == [[], [("succeeded", to_micros(START + 7 * SECOND))]]
    assert (job.state, job.finished_at) == (State.SUCCEEDED, START + 7 * SECOND)


@pytest.mark.req("S2-2.n")
async def test_the_failure_that_passes_the_limit_ends_in_dead_letter_without_a_due_time(
    app: Outlast, store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    ran = []

    @app.job(retry=Backoff(2, base="1m", jitter=False))
    def user_sync() -> None:
        ran.append(1)
        raise ConnectionError("busy")

    handle = await user_sync.enqueue()
    await drain(app)
    once = await handle.read()
    clock.advance("1m")
    await drain(app)
    dead = await handle.read()
    clock.advance("30d")
    await drain(app)

    assert (once.state, once.available_at) == (State.RETRY_WAIT, START + 60 * SECOND)
    assert (dead.state, dead.reason) == (State.DEAD_LETTER, "attempts_exhausted")
    assert dead.available_at == once.available_at  # the one it ran by; there is no new one
    assert sql.rows("SELECT * FROM outlast_waiting") == []
    assert ran == [1, 1]


@pytest.mark.req("S2-2.o")
async def test_after_the_first_failure_it_is_due_sixty_seconds_later(
    app: Outlast, clock: FakeClock
) -> None:
    @app.job(retry=MINUTE)
    def user_sync() -> None:
        clock.advance("7s")
        raise ConnectionError("busy")

    handle = await user_sync.enqueue()
    await drain(app)

    assert (await handle.read()).available_at == clock.now() + 60 * SECOND
    assert clock.now() == START + 7 * SECOND

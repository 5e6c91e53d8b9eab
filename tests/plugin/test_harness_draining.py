"""Draining: what is due runs as a worker would run it, in order, and waits for no real time."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta

import pytest

from outlast import Backoff, Outlast, PermanentError, RetryAfter, Run, RunError, Skip, Snooze, State
from outlast.core.run import Claims
from outlast.core.state import RunStatus
from outlast.testing import drain as draining
from outlast.testing.clock import START
from outlast.testing.harness import Harness

app = Outlast("sqlite:////nowhere/that/exists/jobs.db")
reported: list[object] = []


@app.job(retry=Backoff(3, base="1m"))
async def send(number: int) -> int:
    reported.append(number)
    if number < 0:
        raise ValueError("a negative number")
    return 2 * number


@app.job(queue="slow", priority=3)
def crunch(run: Run, number: int) -> str:
    reported.append(run.attempt)
    return f"{number} in {threading.current_thread().name}"


@app.job
async def fan_out(numbers: list[int], queue: str = "default") -> None:
    for number in numbers:
        await send.options(queue=queue).enqueue(number)


@app.job
async def hurry() -> None:
    await send.options(priority=9).enqueue(9)


@app.job(executor="process")
def elsewhere() -> int:
    return os.getpid()


@app.job(executor="process")
def wants_transaction(run: Run) -> None:
    run.transaction()


@app.job
async def again() -> Snooze:
    return Snooze("0s")


@app.job
async def hourly(run: Run) -> Snooze | None:
    reported.append(run.token)
    return Snooze("1h") if run.token < 4 else None


@app.job(retry=Backoff(2))
async def asks_again() -> RetryAfter:
    return RetryAfter("10m", "not there yet")


@app.job
async def until_cancelled(run: Run) -> None:
    reported.append("started")
    started.set()
    await asyncio.Event().wait()


@app.job
async def returns_nonsense() -> int:
    return "three"  # type: ignore[return-value]


@app.job
def skips() -> Skip:
    return Skip("nothing to do")


@app.job
async def meet() -> None:
    await meeting.wait()


@app.job
async def effect(run: Run, fails: bool) -> None:
    async with run.transaction() as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS effects (job TEXT)")
        conn.execute("INSERT INTO effects VALUES (?)", (run.job_id,))
    if fails:
        raise PermanentError("after the block")


started: asyncio.Event
meeting: asyncio.Barrier


@pytest.fixture(autouse=True)
async def nothing_told() -> AsyncIterator[None]:
    global started, meeting
    started, meeting = asyncio.Event(), asyncio.Barrier(3)
    reported.clear()
    yield
    reported.clear()


@pytest.fixture
def outlast_app() -> Outlast:
    return app


async def test_nothing_due_is_nothing_run(outlast: Harness) -> None:
    drained = await outlast.drain()

    assert (len(drained), repr(drained)) == (0, "Drained(nothing was due)")


async def test_due_jobs_run_in_order_and_tell_their_results(outlast: Harness) -> None:
    for number in (1, 2, 3):
        await send.enqueue(number)
    await send.options(priority=1).enqueue(9)

    drained = await outlast.drain()

    assert reported == [9, 1, 2, 3]
    assert [ran.result for ran in drained] == [18, 2, 4, 6]
    assert {ran.outcome for ran in drained} == {RunStatus.SUCCEEDED}
    assert {ran.job.state for ran in drained} == {State.SUCCEEDED}
    assert drained[0].run.started_at == START
    assert 'send {"number":9} succeeded; send {"number":1}' in repr(drained)


async def test_nothing_is_taken_before_its_turn(outlast: Harness) -> None:
    for number in (1, 2):
        await send.enqueue(number)
    await hurry.enqueue()
    for number in (3, 4):
        await send.enqueue(number)

    await outlast.drain()

    assert reported == [1, 2, 9, 3, 4]


async def test_every_queue_is_served_also_one_that_only_a_job_knows(outlast: Harness) -> None:
    await crunch.enqueue(1)
    await fan_out.enqueue([5, 6], queue="made-up")

    drained = await outlast.drain()

    assert sorted(ran.type for ran in drained) == ["crunch", "fan_out", "send", "send"]
    assert "outlast-handler" in next(ran.result for ran in drained if ran.type == "crunch")
    assert outlast.jobs(states=[State.QUEUED]) == []


async def test_a_failed_job_runs_again_only_when_time_has_passed(outlast: Harness) -> None:
    await send.enqueue(-1)

    first = await outlast.drain()
    at_once = await outlast.drain()
    outlast.advance("59s")
    too_early = await outlast.drain()
    outlast.advance("1s")
    second = await outlast.drain()
    outlast.advance("2m")
    third = await outlast.drain()

    assert [len(each) for each in (first, at_once, too_early, second, third)] == [1, 0, 0, 1, 1]
    assert [each[0].job.state for each in (first, second, third)] == [
        State.RETRY_WAIT,
        State.RETRY_WAIT,
        State.DEAD_LETTER,
    ]
    assert isinstance(third[0].error, ValueError)
    assert third.failed == list(third)
    assert third.succeeded == []


async def test_delayed_jobs_wait_for_the_clock(outlast: Harness) -> None:
    await send.options(delay="1h").enqueue(1)

    assert not await outlast.drain()
    outlast.advance("1h")

    assert [ran.result for ran in await outlast.drain()] == [2]
    assert outlast.now == START + timedelta(hours=1)


async def test_what_could_not_start_in_time_is_skipped(outlast: Harness) -> None:
    handle = await send.options(start_within="5m").enqueue(1)
    outlast.advance("6m")

    assert not await outlast.drain()

    assert (await handle.read()).state is State.SKIPPED


async def test_a_limit_is_kept(outlast: Harness) -> None:
    for number in range(5):
        await send.enqueue(number)
    await crunch.enqueue(1)

    some = await outlast.drain(limit=2, concurrency=4)

    assert len(some) == 2
    assert len(await outlast.drain()) == 4
    with pytest.raises(ValueError, match="limit is 0; it must lie in 1"):
        await outlast.drain(limit=0)


async def test_raising_gives_the_handlers_own_error_and_stops_there(outlast: Harness) -> None:
    await send.enqueue(-1)
    await send.enqueue(2)

    with pytest.raises(ValueError, match="a negative number") as failure:
        await outlast.drain(raising=True)

    assert [entry.name for entry in failure.traceback][-1] == "send"
    assert reported == [-1]
    assert [job.state for job in outlast.jobs()] == [State.RETRY_WAIT, State.QUEUED]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("asks_again", "asks_again.* was failed .*not there yet"),
        ("returns_nonsense", "returns_nonsense.* was failed .*valid integer"),
    ],
)
async def test_raising_tells_failures_without_an_error(
    outlast: Harness, name: str, words: str
) -> None:
    await app.registry.get(name).enqueue()

    with pytest.raises(AssertionError, match="(?s)" + words):
        await outlast.drain(raising=True)


async def test_raising_lets_outcomes_pass(outlast: Harness) -> None:
    await skips.enqueue()

    assert [ran.outcome for ran in await outlast.drain(raising=True)] == [RunStatus.SKIPPED]


async def test_a_job_without_end_is_told(outlast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "MAX_RUNS", 7)
    await again.enqueue()

    with pytest.raises(AssertionError, match=r"7 jobs were run without an end: .*type again"):
        await outlast.drain()

    assert len(await outlast.drain(limit=20)) == 20


async def test_until_idle_jumps_from_due_time_to_due_time(outlast: Harness) -> None:
    await hourly.enqueue()
    await send.options(delay="90m").enqueue(7)
    await send.options(delay="3d").enqueue(8)

    drained = await outlast.drain_until_idle(within="1d")

    assert reported == [1, 2, 7, 3, 4]
    assert [ran.run.started_at - START for ran in drained] == [
        timedelta(minutes=minutes) for minutes in (0, 60, 90, 120, 180)
    ]
    assert outlast.now == START + timedelta(hours=3)
    assert [job.state for job in outlast.jobs(send)] == [State.SUCCEEDED, State.SCHEDULED]


async def test_until_idle_leaves_what_nobody_here_can_run(outlast: Harness) -> None:
    later = Outlast(outlast.store)
    stranger = later.job(name="stranger")(lambda: None)
    await stranger.options(delay="1h").enqueue()

    assert not await outlast.drain_until_idle()

    assert [job.state for job in outlast.jobs()] == [State.QUEUED]


async def test_until_idle_ends_also_where_nothing_is_given_out(
    outlast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object, **__: object) -> Claims:
        return Claims()

    await send.options(delay="1h").enqueue(1)
    monkeypatch.setattr(outlast.store, "claim", nothing)

    async with asyncio.timeout(120):
        assert not await outlast.drain_until_idle()


async def test_until_idle_raises_when_asked(outlast: Harness) -> None:
    await send.options(delay="1h").enqueue(-1)

    with pytest.raises(ValueError, match="negative"):
        await outlast.drain_until_idle(raising=True)


async def test_a_process_handler_runs_here_and_has_no_more_than_it_would(
    outlast: Harness,
) -> None:
    await elsewhere.enqueue()
    await wants_transaction.enqueue()

    here, refused = await outlast.drain()

    assert here.result == os.getpid()
    assert isinstance(refused.error, RunError)
    assert elsewhere.executor == "process"


async def test_a_running_job_hears_that_it_is_cancelled(outlast: Harness) -> None:
    handle = await until_cancelled.enqueue()
    running = asyncio.create_task(outlast.drain())
    await started.wait()

    assert await handle.cancel("enough") is State.RUNNING
    drained = await running

    assert [ran.outcome for ran in drained] == [RunStatus.CANCELLED]


async def test_several_may_run_at_a_time(outlast: Harness) -> None:
    for _ in range(3):
        await meet.enqueue()

    drained = await outlast.drain(concurrency=3)

    assert len(drained.succeeded) == 3


async def test_a_handlers_transaction_commits_with_its_finish_or_not_at_all(
    outlast: Harness,
) -> None:
    good = await effect.enqueue(fails=False)
    await effect.enqueue(fails=True)

    drained = await outlast.drain()

    assert [ran.outcome for ran in drained] == [RunStatus.SUCCEEDED, RunStatus.FAILED]
    path = outlast.store.path  # type: ignore[attr-defined]  # the default is a SQLite file
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT job FROM effects").fetchall() == [(good.id,)]

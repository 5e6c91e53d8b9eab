"""A handler that raises: tried again with patience, then closed with its cause."""

import asyncio
import logging
from datetime import timedelta
from itertools import pairwise

import pytest
from executor_helpers import first_file
from worker_helpers import AT_ONCE, SOON, kinds, statuses

from outlast import Backoff, JobNotSucceeded, PermanentError, Run, State, TransientError

CANARY = "canary-7f3a"


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_a_job_is_tried_until_it_succeeds_and_each_try_is_counted(app, thread):
    seen = []

    def work(run):
        seen.append((run.attempt, run.token))
        if run.attempt < 4:
            raise ValueError(f"not at attempt {run.attempt}")
        return "at last"

    if thread:

        @app.job(name="stubborn", retry=Backoff(5, base="1ms", jitter=False))
        def stubborn(run: Run) -> str:
            return work(run)

    else:

        @app.job(name="stubborn", retry=Backoff(5, base="1ms", jitter=False))
        async def stubborn(run: Run) -> str:
            return work(run)

    async with app.worker():
        handle = await stubborn.enqueue()
        result = await handle.result(SOON)

    assert result == "at last"
    assert seen == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert await statuses(app, handle) == [("failed", "failed")] * 3 + [("succeeded", None)]
    assert (await handle.read()).failures == 3


async def test_each_wait_is_twice_the_one_before(app):
    reported = []
    app.on_failure(reported.append)

    @app.job(retry=Backoff(4, base="60ms", jitter=False))
    async def fail() -> None:
        raise ValueError("always")

    async with app.worker():
        handle = await fail.enqueue()
        await handle.wait(SOON)

    runs = await app.runs(handle.id)
    waits = [
        (after.started_at - before.finished_at).total_seconds() for before, after in pairwise(runs)
    ]
    assert [wait >= least for wait, least in zip(waits, [0.06, 0.12, 0.24], strict=True)] == [
        True
    ] * 3
    chosen = [failure.retry_in for failure in reported]
    assert chosen == [timedelta(milliseconds=60 * n) for n in (1, 2, 4)] + [None]


async def test_listed_waits_are_those_of_the_retries(app):
    reported = []
    app.on_failure(reported.append)

    @app.job(retry=["1ms", "3ms"])
    async def fail() -> None:
        raise ValueError("always")

    async with app.worker():
        handle = await fail.enqueue()
        await handle.wait(SOON)

    chosen = [failure.retry_in for failure in reported]
    assert chosen == [timedelta(milliseconds=1), timedelta(milliseconds=3), None]


async def test_a_wait_function_is_asked_for_each_retry(app):
    reported = []
    app.on_failure(reported.append)

    @app.job(retry=lambda retry: f"{retry}ms", name="fail")
    async def fail() -> None:
        raise ValueError("always")

    async with app.worker():
        handle = await fail.options(max_attempts=4).enqueue()
        await handle.wait(SOON)

    chosen = [failure.retry_in for failure in reported]
    assert chosen == [*(timedelta(milliseconds=n) for n in (1, 2, 3)), None]


async def test_a_wait_function_that_fails_costs_no_job(app):
    def broken(_: int) -> str:
        raise LookupError("no wait today")

    @app.job(retry=Backoff(2, delays=broken))
    async def fail() -> None:
        raise ValueError("always")

    async with app.worker():
        handle = await fail.enqueue()
        assert (await handle.wait(SOON)).state is State.DEAD_LETTER

    errors = [run.error for run in await app.runs(handle.id)]
    assert len(errors) == 2
    assert "no wait today" in errors[0]
    assert errors[0].splitlines()[-1] == "ValueError: always"


@pytest.mark.parametrize("attempts", [1, 2, 5])
async def test_a_job_dies_after_exactly_its_attempts_with_the_traceback_kept(app, attempts):
    calls = []

    @app.job(retry=Backoff(attempts, base="1ms"))
    async def fail(word: str) -> None:
        calls.append(word)
        raise LookupError(f"no {word} here")

    async with app.worker():
        handle = await fail.enqueue("thing")
        job = await handle.wait(SOON)

    assert (job.state, job.reason, job.failures) == (
        State.DEAD_LETTER,
        "attempts_exhausted",
        attempts,
    )
    assert len(calls) == attempts
    runs = await app.runs(handle.id)
    assert [run.token for run in runs] == list(range(1, attempts + 1))
    for run in runs:
        assert run.error.startswith("Traceback")
        assert "LookupError: no thing here" in run.error
        assert __file__ in run.error
    assert await kinds(app, handle) == ["retry"] * (attempts - 1) + ["dead_letter"]


async def test_waiting_for_a_dead_letter_raises_how_it_ended(app):
    @app.job(retry=Backoff(1))
    async def fail() -> int:
        raise LookupError("no thing here")

    async with app.worker():
        handle = await fail.enqueue()
        with pytest.raises(JobNotSucceeded, match="no thing here") as reported:
            await handle.result(SOON)

    assert reported.value.state == "dead_letter"
    assert "Traceback" in reported.value.error


async def test_one_job_may_have_its_own_limit(app):
    calls = []

    @app.job(retry=Backoff(5, base="1ms"))
    async def fail(who: str) -> None:
        calls.append(who)
        raise ValueError(who)

    async with app.worker():
        short = await fail.options(max_attempts=2).enqueue("short")
        long = await fail.enqueue("long")
        await short.wait(SOON)
        await long.wait(SOON)

    assert (calls.count("short"), calls.count("long")) == (2, 5)


class Gone(OSError): ...


@pytest.mark.parametrize(
    ("error", "settings", "calls"),
    [
        (PermanentError("no use"), {}, 1),
        (PermanentError("no use"), {"errors": {PermanentError: "transient"}}, 3),
        (TransientError("later"), {"unknown_error": "permanent"}, 3),
        (TimeoutError("later"), {"unknown_error": "permanent"}, 3),
        (KeyError("x"), {"unknown_error": "permanent"}, 1),
        (KeyError("x"), {"errors": {LookupError: "permanent"}}, 1),
        (KeyError("x"), {"errors": {LookupError: "permanent", KeyError: "transient"}}, 3),
        (Gone("x"), {"errors": {OSError: "permanent"}}, 1),
        (SystemExit(2), {"errors": {BaseException: "permanent"}}, 1),
    ],
)
async def test_the_most_specific_word_on_an_error_decides(app, error, settings, calls):
    seen = []

    @app.job(retry=AT_ONCE, **settings)
    async def fail() -> None:
        seen.append(1)
        raise error

    async with app.worker():
        job = await (await fail.enqueue()).wait(SOON)

    assert len(seen) == calls
    why = "permanent" if calls == 1 else "attempts_exhausted"
    assert (job.state, job.reason) == (State.DEAD_LETTER, why)


async def test_a_failing_job_does_not_hold_up_its_neighbours(app):
    @app.job(retry=Backoff(5, base="1h", jitter=False))
    async def fail() -> None:
        raise ValueError("for an hour")

    @app.job
    async def fine(n: int) -> int:
        return n

    async with app.worker():
        failing = await app.enqueue_many(fail.bind() for _ in range(10))
        handles = await app.enqueue_many(fine.bind(n) for n in range(10))
        results = [await handle.result(SOON) for handle in handles]

    assert results == list(range(10))
    assert {(await each.read()).state for each in failing} == {State.RETRY_WAIT}


async def test_what_a_job_was_given_never_appears_in_the_log(app, caplog):
    caplog.set_level(logging.DEBUG)

    @app.job(retry=AT_ONCE)
    async def fail(secret: str) -> None:
        raise ValueError(secret)

    @app.job(retry=AT_ONCE, max_runtime="30ms")
    def slow(run: Run, secret: str) -> str:
        while not run.cancelled:
            pass
        return secret

    @app.job(delivery="linked", retry=AT_ONCE)
    async def wrong(secret: str) -> int:
        return secret

    async with app.worker():
        handles = [await each.enqueue(secret=CANARY) for each in (fail, slow, wrong)]
        ends = [await handle.wait(SOON) for handle in handles]

    assert [job.state for job in ends] == [State.DEAD_LETTER] * 3
    assert "worker stopped" in caplog.text
    assert CANARY not in caplog.text


@pytest.mark.parametrize("form", ["at_once", "after_await", "in_thread"])
async def test_a_stored_traceback_begins_at_the_handler(app, form):
    once = Backoff(1)

    @app.job(name="at_once", retry=once)
    async def at_once() -> None:
        raise LookupError("here")

    @app.job(name="after_await", retry=once)
    async def later() -> None:
        await asyncio.sleep(0)
        raise LookupError("here")

    @app.job(name="in_thread", retry=once)
    def in_thread() -> None:
        raise LookupError("here")

    async with app.worker():
        handle = await app.registry.get(form).enqueue()
        await handle.wait(SOON)

    assert first_file((await app.runs(handle.id))[0].error) == __file__

"""Sinks of failures: told of each one, once it is on record, and never in the way of a job."""

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

import executor_app
import pytest
from executor_helpers import LONG
from pydantic import AfterValidator
from worker_helpers import AT_ONCE, SOON, all_slots_work, query, quick, statuses, take_away

from outlast import Backoff, Command, Failure, InvalidType, Outlast, RetryAfter, Run, Snooze, State
from outlast.worker import failure_reporter

SECRET = "hunter2 & co"  # noqa: S105 - the one that must not be told


class Reported(list[Failure]):
    """A sink that remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.has_some = threading.Event()

    def __call__(self, failure: Failure) -> None:
        self.append(failure)
        self.has_some.set()


@pytest.fixture
def reported(app: Outlast) -> Reported:
    return app.on_failure(Reported())


async def test_each_failed_attempt_is_told_and_no_other(app: Outlast, reported: Reported) -> None:
    @app.job(retry=AT_ONCE)
    async def flaky(run: Run) -> int | Snooze:
        if run.token == 1:
            return Snooze("1ms")
        if run.attempt < 3:
            raise LookupError("not yet")
        return run.attempt

    async with app.worker(instance_id="worker-7"):
        handle = await flaky.enqueue()
        assert await handle.result(SOON) == 3

    assert [(each.attempt, each.state, each.status) for each in reported] == [
        (1, State.RETRY_WAIT, "failed"),
        (2, State.RETRY_WAIT, "failed"),
    ]
    runs = {run.run_id: run for run in await app.runs(handle.id)}
    for each in reported:
        assert (each.job_id, each.job_type, each.worker) == (handle.id, "flaky", "worker-7")
        assert (each.max_attempts, each.error) == (3, "LookupError")
        assert each.traceback == runs[each.run_id].error
        assert each.raised[0].frames[-1].function == "flaky"
        assert not each.is_final
    assert [each.retry_in for each in reported] == [
        timedelta(milliseconds=1),
        timedelta(milliseconds=2),
    ]


async def test_it_is_told_when_it_is_on_record(path, app: Outlast) -> None:
    seen = []

    @app.on_failure
    def look(failure: Failure) -> None:
        seen.append(query(path, "SELECT count(*) FROM outlast_runs WHERE status = 'failed'"))

    @app.job(retry=Backoff(1))
    def broken() -> None:
        raise LookupError

    async with app.worker():
        await (await broken.enqueue()).wait(SOON)

    assert seen == [[(1,)]]


def refuse(value: str) -> str:
    if value != SECRET:
        raise ValueError("it is no secret")
    return value


async def fails_async(secret: str) -> None:
    raise LookupError(f"no door for {secret}")


def fails_in_a_thread(secret: str) -> None:
    raise LookupError(f"no door for {secret}")


async def gives_no_result(secret: str) -> int:
    return f"no number: {secret}"  # type: ignore[return-value]  # that is the point


async def asks_again(secret: str) -> RetryAfter:
    return RetryAfter("1h", f"closed for {secret}")


def takes_too_long(run: Run, secret: str) -> None:
    while not run.cancelled:
        threading.Event().wait(0.01)


def runs_a_command(secret: str) -> Command:
    return Command([executor_app.PYTHON, "-c", "import sys; sys.exit(sys.argv[1])", secret])


KINDS: list[tuple[Callable[..., object], dict[str, object], str]] = [
    (fails_async, {}, "LookupError"),
    (fails_in_a_thread, {}, "LookupError"),
    (gives_no_result, {}, "PermanentError"),
    (asks_again, {}, "failed"),
    (takes_too_long, {"max_runtime": "50ms"}, "lost"),
    (runs_a_command, {"executor": "command"}, "CommandFailed"),
]


@pytest.mark.parametrize(
    ("handler", "how", "error"), KINDS, ids=[each[0].__name__ for each in KINDS]
)
async def test_however_a_handler_fails_it_is_told_without_its_secret(
    app: Outlast, reported: Reported, caplog, handler, how, error
) -> None:
    caplog.set_level(logging.DEBUG)
    kind = app.job(retry=Backoff(1), **how)(handler)

    async with app.worker():
        handle = await kind.enqueue(secret=SECRET)
        await handle.wait(LONG)

    [failure] = reported
    assert (failure.error, failure.is_final, failure.payload) == (
        error,
        True,
        {"secret": "[redacted]"},
    )
    assert "hunter2" not in str(failure)
    assert "hunter2" not in caplog.text
    assert all("hunter2" not in str(vars(record)) for record in caplog.records)


async def test_a_handler_in_a_process_of_its_own_is_told_alike(
    app: Outlast, reported: Reported
) -> None:
    kind = app.job(name="fail", executor="process", retry=Backoff(1))(executor_app.fail)

    async with app.worker(app_address=executor_app.ADDRESS):
        await (await kind.enqueue("value")).wait(LONG)

    [failure] = reported
    [raised] = failure.raised
    assert (failure.error, raised.message, raised.module) == ("ValueError", "no good", "builtins")
    assert raised.frames[-1].function == "fail"
    assert raised.frames[-1].code == 'raise ValueError("no good")'


async def test_stored_params_that_no_longer_fit_are_told_and_logged(
    path, app: Outlast, caplog
) -> None:
    rival = quick(path, max_unfit="0s")
    reported = rival.on_failure(Reported())

    @app.job(name="door")
    def as_it_was(secret: str) -> None: ...

    @rival.job(name="door")
    def as_it_is(secret: Annotated[str, AfterValidator(refuse)]) -> None: ...

    handle = await as_it_was.enqueue("an old one")
    async with rival, rival.worker():
        await handle.wait(SOON)

    [failure] = reported
    assert (failure.error, failure.state) == ("UnfitParams", State.DEAD_LETTER)
    assert "an old one" not in str(failure)
    lines = [record for record in caplog.records if record.message.startswith("job_error")]
    assert len(lines) == 1


async def test_shown_fields_are_shown_to_whom_they_were_promised(app: Outlast) -> None:
    some, others = Reported(), Reported()
    app.on_failure(some, show=["user"])
    app.on_failure(others)

    @app.job(retry=Backoff(1))
    def broken(user: str, secret: str) -> None:
        raise LookupError(f"{user} has no {secret}")

    async with app.worker():
        await (await broken.enqueue("Ada", SECRET)).wait(SOON)

    assert [each.payload for each in (some[0], others[0])] == [
        {"user": "Ada", "secret": "[redacted]"},
        {"user": "[redacted]", "secret": "[redacted]"},
    ]
    assert some[0].raised[0].message == "Ada has no [redacted]"
    assert others[0].raised[0].message == "[redacted] has no [redacted]"


@pytest.mark.parametrize("error", [ConnectionError(SECRET), SystemExit(3), KeyboardInterrupt()])
async def test_a_sink_that_fails_harms_no_job_and_no_other_sink(
    app: Outlast, caplog, error: BaseException
) -> None:
    def broken_sink(failure: Failure) -> None:
        raise error

    app.on_failure(broken_sink)
    reported = app.on_failure(Reported())

    @app.job(retry=AT_ONCE)
    def broken() -> None:
        raise LookupError

    async with app.worker():
        handle = await broken.enqueue()
        await handle.wait(SOON)
        assert await all_slots_work(app)

    assert await statuses(app, handle) == [("failed", "failed")] * 2 + [
        ("failed", "attempts_exhausted")
    ]
    assert len(reported) == 3
    complaints = [record.message for record in caplog.records if record.message.startswith("sink ")]
    assert len(complaints) == 1, "one line until it works again"
    assert f"broken_sink failed: {type(error).__name__}" in complaints[0]
    assert SECRET not in caplog.text


async def test_a_sink_that_never_answers_delays_no_job(
    app: Outlast, caplog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_reporter, "CLOSE_TIMEOUT", timedelta(milliseconds=50))
    monkeypatch.setattr(failure_reporter, "MAX_PENDING_FAILURES", 2)
    release, taken = threading.Event(), []

    @app.on_failure
    def stuck(failure: Failure) -> None:
        taken.append(failure)
        release.wait(100)

    @app.job(retry=Backoff(1))
    async def broken() -> None:
        raise LookupError

    async with app.worker() as worker:
        handles = [await broken.enqueue() for _ in range(6)]
        ends = [await handle.wait(SOON) for handle in handles]
        await worker.drained()
    release.set()

    assert [job.state for job in ends] == [State.DEAD_LETTER] * 6
    assert 1 <= len(taken) <= 3
    assert "failures dropped: 2 wait for a slow sink" in caplog.text


async def test_what_the_sinks_have_not_heard_they_hear_before_the_worker_is_gone(
    app: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_reporter, "CLOSE_TIMEOUT", timedelta(minutes=2))
    reported = []

    @app.on_failure
    def slow(failure: Failure) -> None:
        threading.Event().wait(0.02)
        reported.append(failure)

    @app.job(retry=Backoff(1))
    async def broken() -> None:
        raise LookupError

    for _ in range(2):  # a worker's block may be entered again
        worker = app.worker()
        async with worker:
            for _ in range(5):
                await broken.enqueue()
            await worker.drained()

    assert len(reported) == 10


async def test_an_attempt_that_was_taken_away_is_not_told(path, app, rival) -> None:
    reported = app.on_failure(Reported())
    begun, release = threading.Event(), threading.Event()
    for each in (app, rival):

        @each.job(name="slow")
        def slow(run: Run) -> int:
            if run.token == 1:
                begun.set()
                release.wait(100)
                raise LookupError("too late")
            return run.token

    async with app.worker() as late:
        handle = await slow.enqueue()
        assert await asyncio.to_thread(begun.wait, 100)
        async with rival.worker():
            await take_away(path, handle)
            assert await handle.result(SOON) == 2
        release.set()
        await late.drained()

    assert (late.refused, reported) == (1, [])


class Nasty(Exception):
    """Whatever is asked of it fails."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]  # that is the point
        raise RuntimeError("no")


async def test_an_exception_that_cannot_be_looked_at_is_told_all_the_same(
    app: Outlast, reported: Reported
) -> None:
    @app.job(retry=Backoff(1))
    async def nasty() -> None:
        raise Nasty

    async with app.worker():
        job = await (await nasty.enqueue()).wait(SOON)

    assert job.state is State.DEAD_LETTER
    assert [each.job_id for each in reported] == [job.id]


async def afterwards(failure: Failure) -> None: ...


class Later:
    async def __call__(self, failure: Failure) -> None: ...


@pytest.mark.parametrize("sink", [None, "sentry", afterwards, Later(), Reported])
def test_what_can_be_no_sink_is_refused(app: Outlast, sink) -> None:
    with pytest.raises(InvalidType, match="a failure sink is"):
        app.on_failure(sink)


@pytest.mark.parametrize("show", ["user_id", [""], [3], map(str, range(2_000))])
def test_what_can_be_no_field_is_refused(app: Outlast, show) -> None:
    with pytest.raises(InvalidType, match="show"):
        app.on_failure(print, show=show)

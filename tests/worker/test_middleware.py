"""Middleware runs around each handler, in order, and changes no outcome except by an error."""

import asyncio
import functools
import os
import threading
from contextlib import contextmanager, suppress

import pytest
from executor_helpers import LONG
from middleware_app import ADDRESS, SEEN, inner, install, outer
from worker_helpers import AT_ONCE, SOON, quick

from outlast import Command, InvalidType, PermanentError, Run, Skip, State
from outlast.core.state import RunStatus
from outlast.worker.run_outcome import ActiveRun


@pytest.fixture
async def app(path, tmp_path):
    async with quick(path, logs=tmp_path / "logs") as app:
        yield app


async def runs_of(app, job_type, *args):
    """Run one job in a worker; return the job and its first run."""
    async with app.worker(types=[job_type.name]):
        handle = await job_type.enqueue(*args)
        await handle.wait(SOON)
    [run, *_] = await app.runs(handle.id)
    return await app.get(handle.id), run


def recorder(name, seen):
    async def middleware(run: Run):
        seen.append(f"{name} begins")
        try:
            value = yield
            seen.append(f"{name} sees {value}")
        except BaseException as error:
            seen.append(f"{name} sees {error!r}")
            raise

    return middleware


@pytest.mark.parametrize("name", ["in_loop", "in_thread"])
async def test_the_first_middleware_is_the_outermost_and_the_handler_sees_its_context(app, name):
    install(app, outer, inner)

    async with app.worker(app_address=ADDRESS):
        seen = await (await app.registry.get(name).enqueue()).result(SOON)

    assert list(seen) == [f"outer {name}", "inner 1"]
    assert SEEN.get() == ()


@pytest.mark.slow
async def test_it_runs_inside_the_process_of_a_process_handler(app):
    install(app)  # the app of this process has none

    async with app.worker(app_address=ADDRESS):
        for name in ("in_process", "plainly_in_process"):
            pid, seen = await (await app.registry.get(name).enqueue()).result(LONG)
            assert pid != os.getpid()
            assert list(seen) == [f"outer {name}", "inner 1"]
        fails = app.registry.get("fails_in_process").options(max_attempts=1)
        failed = await fails.enqueue()
        await failed.wait(LONG)

    [run] = await app.runs(failed.id)
    assert run.error.count('File "') == 1, "only the frame of the handler"


@pytest.mark.parametrize("is_async", [True, False])
async def test_middleware_begins_and_ends_in_order(app, is_async):
    seen = []
    for name in ("first", "second"):
        app.around(recorder(name, seen))

    async def double(number: int) -> int:
        return 2 * number

    def plain_double(number: int) -> int:
        return 2 * number

    job, _ = await runs_of(app, app.job(double if is_async else plain_double), 4)

    assert job.state is State.SUCCEEDED
    expected = ["first begins", "second begins", "second sees 8", "first sees 8"]
    assert seen == expected


async def test_plain_middleware_runs_in_the_thread_of_the_handler(app):
    threads = set()

    @app.around
    def notes(run: Run):
        threads.add(threading.get_ident())
        yield
        threads.add(threading.get_ident())

    @app.job
    def handler() -> None:
        threads.add(threading.get_ident())

    await runs_of(app, handler)

    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_error_before_the_handler_is_the_error_of_the_run(app, is_async):
    called = []

    async def broken(run: Run):
        raise PermanentError("from the middleware")
        yield

    def plainly_broken(run: Run):
        raise PermanentError("from the middleware")
        yield

    app.around(broken if is_async else plainly_broken)

    @app.job
    def handler() -> None:
        called.append(1)

    job, run = await runs_of(app, handler)

    assert (called, job.state, run.status) == ([], State.DEAD_LETTER, RunStatus.FAILED)
    assert run.error.splitlines()[1].split('"')[1] == __file__
    assert "from the middleware" in run.error


async def test_an_error_after_the_handler_is_the_error_of_the_run(app):
    @app.around
    async def broken(run: Run):
        yield
        raise PermanentError("from the middleware")

    @app.job
    async def handler() -> int:
        return 3

    job, run = await runs_of(app, handler)

    assert (job.state, run.result) == (State.DEAD_LETTER, None)
    assert run.error.splitlines()[1].split('"')[1] == __file__


async def test_a_translated_error_keeps_its_cause(app):
    @app.around
    def translates(run: Run):
        try:
            yield
        except KeyError as error:
            raise PermanentError("no such thing") from error

    @app.job(retry=AT_ONCE)
    async def handler() -> None:
        raise KeyError("cause")

    job, run = await runs_of(app, handler)

    assert job.state is State.DEAD_LETTER
    assert "KeyError: 'cause'" in run.error
    assert run.error.rstrip().endswith("no such thing")


@pytest.mark.parametrize("is_async", [True, False])
async def test_middleware_cannot_hide_an_error_of_the_handler(app, is_async):
    async def hides(run: Run):
        with suppress(PermanentError):
            yield

    def plainly_hides(run: Run):
        with suppress(PermanentError):
            yield

    app.around(hides if is_async else plainly_hides)

    @app.job
    async def handler() -> None:
        raise PermanentError("still there")

    job, run = await runs_of(app, handler)

    assert job.state is State.DEAD_LETTER
    assert "still there" in run.error
    assert run.error.count('File "') == 1, "only the frame of the handler"


async def test_an_outcome_of_the_handler_passes_through(app):
    seen = []
    app.around(recorder("it", seen))

    @app.job
    async def handler() -> Skip:
        return Skip("nothing there")

    job, _ = await runs_of(app, handler)

    assert job.state is State.SKIPPED
    assert seen[1].startswith("it sees Skip")


@pytest.mark.parametrize("how", ["never", "twice", "twice after an error"])
@pytest.mark.parametrize("is_async", [True, False])
async def test_middleware_that_does_not_yield_once_fails_the_run_by_name(app, how, is_async):
    async def wrong(run: Run):
        if how != "never":
            with suppress(ValueError):
                yield
            yield

    def plainly_wrong(run: Run):
        if how != "never":
            with suppress(ValueError):
                yield
            yield

    app.around(wrong if is_async else plainly_wrong)
    other = []

    @app.job
    async def handler() -> None:
        other.append(1)
        if how == "twice after an error":
            raise ValueError("of the handler")

    async with app.worker():
        handle = await handler.options(max_attempts=1).enqueue()
        job = await handle.wait(SOON)
    [run] = await app.runs(handle.id)

    assert job.state is State.DEAD_LETTER
    assert ("without a yield" if how == "never" else "yielded twice") in run.error
    assert "wrong" in run.error
    assert len(other) == (how != "never")


async def test_a_worker_survives_middleware_that_raises_anything(app):
    @app.around
    async def broken(run: Run):
        if run.type == "first":
            raise SystemExit(3)
        yield

    @app.job
    async def first() -> None: ...

    @app.job
    async def second() -> int:
        return 2

    async with app.worker():
        lost = await first.options(max_attempts=1).enqueue()
        assert await (await second.enqueue()).result(SOON) == 2
        assert (await lost.wait(SOON)).state is State.DEAD_LETTER


async def test_middleware_that_hangs_ends_at_the_time_limit(app):
    @app.around
    async def hangs(run: Run):
        await asyncio.Event().wait()
        yield

    @app.job(max_runtime="50ms")
    async def handler() -> None: ...

    async with app.worker():
        handle = await handler.options(max_attempts=1).enqueue()
        await handle.wait(SOON)

    [run] = await app.runs(handle.id)
    assert (run.status, run.reason) == (RunStatus.LOST, "timeout")


async def test_a_cancelled_handler_shows_the_cancellation_to_its_middleware(app):
    seen, started = [], asyncio.Event()
    app.around(recorder("it", seen))

    @app.job
    async def handler() -> None:
        started.set()
        await asyncio.Event().wait()

    async with app.worker():
        handle = await handler.enqueue()
        await started.wait()
        await app.cancel(handle.id)
        job = await handle.wait(SOON)

    assert job.state is State.CANCELLED
    assert seen == ["it begins", "it sees CancelledError()"]


async def test_a_command_has_its_middleware_around_the_function_that_builds_it(app):
    seen = []
    app.around(recorder("it", seen))

    @app.job(executor="command")
    def handler() -> Command:
        return Command(["true"])

    job, _ = await runs_of(app, handler)

    assert job.state is State.SUCCEEDED
    assert seen[1].startswith("it sees Command")


async def test_middleware_has_the_transaction_of_the_run_and_its_progress(app):
    @app.around
    async def writes(run: Run):
        async with run.transaction() as conn:
            conn.execute("CREATE TABLE IF NOT EXISTS notes (text)")
            conn.execute("INSERT INTO notes VALUES (?)", (run.id,))
        run.rows(2)
        yield

    @app.job
    async def handler() -> None: ...

    job, _ = await runs_of(app, handler)

    assert job.state is State.SUCCEEDED


async def test_without_middleware_no_run_object_and_no_wrapper_is_made(app):
    @app.job
    async def handler() -> None: ...

    active = ActiveRun(None, handler, lambda *_: pytest.fail("a run object was made"))

    assert active.handler is handler.function
    app.around(outer)
    with pytest.raises(pytest.fail.Exception):
        assert active.handler is not handler.function


def async_context_manager(run: Run):
    return contextmanager(inner)(run)


class Callable:
    async def __call__(self, run):
        yield


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (3, "yields once"),
        (lambda run: None, "yields once"),
        (contextmanager(inner), "without @contextmanager"),
        (async_context_manager, "yields once"),
        (Callable(), "yields once"),
        (asyncio.sleep, "yields once"),
    ],
)
async def test_what_is_no_generator_function_is_refused(app, function, why):
    with pytest.raises(InvalidType, match=why):
        app.around(function)


async def test_a_wrong_signature_is_refused(app):
    def nothing():
        yield

    async def two(run: Run, more: int):
        yield

    for wrong in (nothing, two):
        with pytest.raises(InvalidType, match="must take one argument"):
            app.around(wrong)
    assert app.around(functools.partial(two, more=3))

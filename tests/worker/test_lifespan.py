"""A lifespan starts before the first claim of a process and ends after its last run."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
from executor_helpers import run, text_of
from worker_helpers import SOON, quick, until

from outlast import ConfigurationError, InvalidType, Outlast, Run, State


@pytest.fixture
def seen():
    return []


@pytest.fixture
async def new_app(path, tmp_path):
    """Return a function that makes an app with one handler, which returns its context."""
    apps = []

    def make(lifespan, **settings):
        app = Outlast(quick(path).url, lifespan=lifespan, grace="60s", **settings)

        @app.job
        async def context(run: Run) -> str:
            return str(run.context)

        apps.append(app)
        return app

    yield make
    for app in apps:
        await app.close()


async def test_its_value_is_the_context_of_every_run_and_it_ends_after_the_last(new_app, seen):
    @asynccontextmanager
    async def lifespan(app):
        seen.append(f"starts for {app.name}")
        yield "the value"
        seen.append("ends")

    app = new_app(lifespan)

    @app.job
    async def late() -> None:
        seen.append("a run starts")
        await asyncio.sleep(0.05)
        seen.append("a run ends")

    async with app, app.worker():
        assert await (await run(app, "context")).result(SOON) == "the value"
        await run(app, "late")
        await until(lambda: "a run starts" in seen)

    assert seen == [f"starts for {app.name}", "a run starts", "a run ends", "ends"]


async def test_a_worker_that_starts_again_enters_it_again(new_app, seen):
    @asynccontextmanager
    async def lifespan(app):
        seen.append(1)
        yield len(seen)

    app = new_app(lifespan)
    worker = app.worker()
    async with app:
        for number in (1, 2):
            async with worker:
                assert await (await run(app, "context")).result(SOON) == str(number)


async def test_it_is_entered_and_left_in_one_task(new_app, seen):
    @asynccontextmanager
    async def lifespan(app):
        async with asyncio.TaskGroup() as group:  # refuses to be left by another task
            group.create_task(asyncio.sleep(0))
            yield
            seen.append("ends")

    app = new_app(lifespan)
    async with app, app.worker():
        await (await run(app, "context")).result(SOON)

    assert seen == ["ends"]


async def test_without_a_lifespan_the_context_is_an_error_that_says_what_to_do(new_app):
    app = new_app(None)
    async with app, app.worker():
        handle = await app.registry.get("context").options(max_attempts=1).enqueue()
        await handle.wait(SOON)

    async with app:
        [record] = await app.runs(handle.id)
    assert "Outlast(lifespan=…)" in record.error


@asynccontextmanager
async def raises(app):
    raise OSError("no server")
    yield


@asynccontextmanager
async def exits(app):
    raise SystemExit(4)
    yield


@asynccontextmanager
async def never_yields(app):
    if app is None:
        yield


@asynccontextmanager
async def hangs(app):
    await asyncio.Event().wait()
    yield


def is_nothing(app):
    return 3


@pytest.mark.parametrize(
    ("lifespan", "why"),
    [
        (raises, "raises could not start: OSError: no server"),
        (exits, "exits could not start: SystemExit: 4"),
        (never_yields, "generator didn't yield"),
        (hangs, r"did not start within lifespan_timeout \(50ms\)"),
        (is_nothing, "asynchronous context manager"),
    ],
)
async def test_one_that_cannot_start_stops_the_worker_and_claims_nothing(new_app, lifespan, why):
    app = new_app(lifespan, lifespan_timeout="50ms" if lifespan is hangs else "60s")
    async with app:
        handle = await run(app, "context")
        with pytest.raises(ConfigurationError, match=why):
            async with app.worker():
                pytest.fail("the worker started")

        assert (await handle.read()).state is State.QUEUED
        assert await app.runs(handle.id) == []


@pytest.mark.parametrize("fault", ["raises", "hangs", "yields twice"])
async def test_a_failure_at_the_end_is_logged_and_changes_no_result(new_app, caplog, fault):
    @asynccontextmanager
    async def lifespan(app):
        yield
        if fault == "raises":
            raise OSError("no server")
        if fault == "hangs":
            await asyncio.Event().wait()
        yield

    app = new_app(lifespan, lifespan_timeout="50ms" if fault == "hangs" else "60s")
    with caplog.at_level(logging.ERROR, "outlast.worker"):
        async with app, app.worker():
            handle = await run(app, "context")
            await handle.result(SOON)

    async with app:
        assert (await handle.read()).state is State.SUCCEEDED
    assert "lifespan" in caplog.text
    assert ("did not end in time" if fault == "hangs" else "failed at its end") in caplog.text


async def generator(app):
    yield


async def coroutine(app):
    return None


@pytest.mark.parametrize("wrong", [3, generator, coroutine])
def test_what_is_no_context_manager_is_refused_at_once(wrong):
    with pytest.raises(InvalidType, match=r"contextlib\.asynccontextmanager"):
        Outlast("sqlite:///jobs.db", lifespan=wrong)


PROGRAM = """
import os
from contextlib import asynccontextmanager
from pathlib import Path

from outlast import Outlast, Run


def note(text):
    with open("seen", "a") as file:
        file.write(f"{text}\\n")


@asynccontextmanager
async def lifespan(app):
    if Path("broken").exists():
        raise OSError("no server")
    note(f"starts {os.getpid()}")
    yield os.getpid()
    note(f"ends {os.getpid()}")


app = Outlast("sqlite:///jobs.db", lifespan=lifespan)


@app.job
async def here(run: Run) -> None:
    assert run.context == os.getpid()
    note(f"runs {os.getpid()}")


@app.job(executor="process")
async def elsewhere(run: Run) -> None:
    assert run.context == os.getpid()
    note(f"runs {os.getpid()}")


@app.job(executor="process")
def plainly_elsewhere(run: Run) -> None:
    assert run.context == os.getpid()
    note(f"runs {os.getpid()}")
"""
ENQUEUE = """
import asyncio
from program import app, elsewhere, here, plainly_elsewhere
async def main():
    async with app:
        for job_type in (here, elsewhere, plainly_elsewhere):
            await job_type.enqueue()
asyncio.run(main())
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "-c", ENQUEUE], cwd=tmp_path, check=True, timeout=240)
    return tmp_path


def worker(project, *options):
    return subprocess.Popen(
        [sys.executable, "-m", "outlast", "worker", "program:app", *options],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
async def test_each_child_and_handler_process_has_its_own_and_ends_it_on_sigterm(project):
    seen = project / "seen"
    process = worker(project)
    await until(lambda: seen.exists() and text_of(seen).count("runs") == 3)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=240)

    lines = [line.split() for line in text_of(seen).splitlines()]
    assert process.returncode == 0, output
    pids = {pid for word, pid in lines if word == "runs"}
    assert len(pids) in {2, 3}
    assert str(os.getpid()) not in pids
    for pid in pids:
        words = [word for word, of in lines if of == pid]
        assert (words[0], words[-1]) == ("starts", "ends"), lines
        assert set(words[1:-1]) == {"runs"}


@pytest.mark.slow
async def test_a_worker_command_whose_lifespan_fails_exits_and_says_why(project):
    (project / "broken").touch()

    process = worker(project, "--processes", "2")
    output, _ = process.communicate(timeout=240)

    assert process.returncode == 2
    assert "lifespan lifespan could not start: OSError: no server" in output
    assert not (project / "seen").exists()

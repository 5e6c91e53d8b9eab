"""Handler classes run wherever functions do."""

import os

import pytest
from class_app import register
from executor_helpers import LONG
from worker_helpers import quick

from outlast import State

pytestmark = pytest.mark.slow


@pytest.fixture
async def app(path, tmp_path):
    async with quick(path, logs=tmp_path / "logs") as app:
        register(app)
        yield app


async def test_a_handler_class_runs_in_a_process_of_its_own(app):
    kinds = app.registry
    async with app.worker(app_address="class_app:app"):
        plain = await kinds.get("double").enqueue(value=3)
        later = await kinds.get("double_later").enqueue(value=4)

        doubled, attempt, pid = await plain.result(LONG)
        assert (doubled, attempt) == (6, 1)
        assert pid != os.getpid()
        assert await later.result(LONG) == 8


async def test_a_handler_class_can_say_what_command_to_run(app):
    async with app.worker(app_address="class_app:app"):
        handle = await app.registry.get("exit").enqueue(value=3)

        job = await handle.wait(LONG)

    [run] = await app.runs(job.id)
    assert (job.state, run.exit_code) == (State.SUCCEEDED, 3)

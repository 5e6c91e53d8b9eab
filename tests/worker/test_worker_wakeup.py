"""One process wakes another: what would take a minute's poll takes a moment."""

import asyncio
import os
import shutil
import tempfile

import pytest
from worker_helpers import Child, quick

from outlast import Backoff, Run, State

SLOW = {"poll": "10m", "renew": "10m", "lease": "1h", "tick": "10m"}
"""Without a hint nothing would be noticed before the test is over."""
MOMENT = "120s"
"""Far less than that, on however busy a machine."""


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """A runtime folder of this test alone."""
    folder = tempfile.mkdtemp(prefix="hf-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    yield folder
    shutil.rmtree(folder)


def _never(app):
    @app.job(name="leased", retry=Backoff(3))
    async def leased(run: Run) -> str:
        raise AssertionError("it runs in the other process")

    return leased


@pytest.mark.slow
async def test_an_idle_worker_takes_a_job_of_another_process_at_once(path):
    async with quick(path, **SLOW) as app:
        leased = _never(app)
        async with await Child.start(path, "idle", **SLOW) as child:
            await child.says("idle")

            handle = await leased.enqueue()

            assert await child.says("holding") == f"holding {handle.id}"


@pytest.mark.slow
async def test_a_waiter_learns_of_the_end_in_another_process_at_once(path, runtime):
    async with quick(path, **SLOW) as app:
        leased = _never(app)
        handle = await leased.enqueue()
        async with await Child.start(path, "frozen", **SLOW) as child:
            await child.says("holding")
            waiting = asyncio.create_task(handle.result(MOMENT))
            while not _listens_for_ends(runtime):  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.001)

            child.tell("go on")

            assert await waiting == "from the zombie"


@pytest.mark.slow
async def test_a_cancel_request_reaches_a_handler_in_another_process_at_once(path):
    async with quick(path, **SLOW) as app:
        leased = _never(app)
        handle = await leased.enqueue()
        async with await Child.start(path, "holding", **SLOW) as child:
            await child.says("holding")

            await handle.cancel()
            job = await handle.wait(MOMENT)

    assert job.state is State.CANCELLED


@pytest.mark.slow
async def test_without_hints_polling_still_finds_everything(path, runtime, monkeypatch):
    too_long = tempfile.mkdtemp(prefix="x" * 120, dir=runtime)
    monkeypatch.setenv("XDG_RUNTIME_DIR", too_long)
    async with quick(path) as app:
        leased = _never(app)
        async with await Child.start(path, "idle") as child:
            await child.says("idle")
            handle = await leased.enqueue()
            await child.says("holding")

            await handle.cancel()
            job = await handle.wait(MOMENT)

    assert job.state is State.CANCELLED


def _listens_for_ends(runtime):
    names = [name for _, _, files in os.walk(runtime) for name in files]
    return any(name.startswith("2-") for name in names)

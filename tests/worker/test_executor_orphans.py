"""A worker that is killed takes with it every process it started, whatever they are doing."""

import asyncio
import sys
from pathlib import Path

import pytest
from executor_app import register
from executor_helpers import gone, is_alive, parent_of, run, word
from worker_helpers import quick

pytestmark = pytest.mark.slow

APP = Path(__file__).with_name("executor_app.py")


@pytest.mark.parametrize("name", ["hang", "defy", "hog", "sleeper"])
async def test_a_killed_worker_leaves_no_process(path, tmp_path, name):
    async with quick(path) as app:
        register(app)
        worker = await asyncio.create_subprocess_exec(
            sys.executable, str(APP), str(path), str(tmp_path / "logs")
        )
        await run(app, name, str(tmp_path / "mark"))
        pids = await word(tmp_path / "mark")
        keeper = parent_of(pids[0])
        alive = [is_alive(pid) for pid in (*pids, keeper)]

        worker.kill()
        await worker.wait()

        await gone(*pids, keeper)
    assert all(alive)
    assert len(alive) == (3 if name in {"defy", "sleeper"} else 2)


async def test_a_killed_worker_leaves_no_daemon_of_its_commands(path, tmp_path):
    async with quick(path) as app:
        register(app)
        worker = await asyncio.create_subprocess_exec(
            sys.executable, str(APP), str(path), str(tmp_path / "logs")
        )
        await run(app, "daemons", str(tmp_path / "mark"), 600)
        pids = await word(tmp_path / "mark")

        worker.kill()
        await worker.wait()

        await gone(*pids)

"""The processes of a worker run on uvloop if it is installed and not turned off."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from outlast import Outlast
from outlast.worker.event_loop import loop_factory

APP = """
import asyncio, os
from outlast import Outlast

app = Outlast(os.environ["LOOP_URL"], uvloop=os.environ["LOOP_UVLOOP"] == "yes")


@app.job
async def on_loop() -> str:
    await asyncio.sleep(0)
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


@app.job
def in_thread(n: int) -> int:
    return n + 1


@app.job(executor="process")
def in_process(n: int) -> int:
    return n + 1


@app.job
async def starts_program() -> int:
    program = await asyncio.create_subprocess_exec("true")
    return await program.wait()
"""


@pytest.mark.slow
def test_worker_runs_all_kinds_of_handlers_with_uvloop_and_without_it(tmp_path):
    (tmp_path / "loop_app.py").write_text(APP)

    answers = {choice: _run(tmp_path, choice) for choice in ("yes", "no")}

    assert answers == {"yes": ["uvloop", 2, 2, 0], "no": ["asyncio", 2, 2, 0]}


def test_without_the_package_the_loop_is_that_of_asyncio(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert loop_factory(uvloop=True) is None


def test_loop_of_windows_is_that_of_asyncio(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")

    assert loop_factory(uvloop=True) is None


def _run(folder, choice):
    url = f"sqlite:///{folder / choice}.db"
    env = {**os.environ, "LOOP_URL": url, "LOOP_UVLOOP": choice, "PYTHONPATH": str(folder)}
    enqueue = (
        "import asyncio, loop_app as a\n"
        "async def main():\n"
        "    await a.on_loop.enqueue(); await a.in_thread.enqueue(1)\n"
        "    await a.in_process.enqueue(1); await a.starts_program.enqueue()\n"
        "asyncio.run(main())"
    )
    subprocess.run([sys.executable, "-c", enqueue], env=env, check=True, timeout=240)
    program: Sequence[str] = (sys.executable, "-m", "outlast", "worker", "loop_app:app", "--burst")
    subprocess.run(program, env=env, check=True, timeout=240, cwd=folder)
    return asyncio.run(_results(url))


async def _results(url):
    async with Outlast(url) as app:
        jobs = (await app.jobs.page()).jobs
        runs = [(await app.runs(job.id))[-1] for job in reversed(jobs)]
        return [json.loads(run.result) for run in runs]

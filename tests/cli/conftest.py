"""A user's folder with an app in it, and the command run in that folder."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from outlast.cli.app_loader import load_app
from outlast.cli.main import main

APP = """
from outlast import Backoff, Outlast, Run, Snooze

app = Outlast("sqlite:///jobs.db", renew="500ms")


@app.job
async def add(left: int, right: int = 0) -> int:
    return left + right


@app.job(retry=Backoff(max_attempts=1), queue="mail")
async def broken(user: str) -> None:
    raise KeyError(user)


@app.job(queue="studio", delivery="linked")
async def story(title: str) -> str:
    return title


@app.job(delivery="once")
async def brief() -> None: ...


@app.job
async def counting(run: Run, to: int) -> str:
    for n in range(1, to + 1):
        run.progress(n, to, f"step {n}")
    return "counted"
"""


class Cli:
    """`cli("jobs", "state:queued")` in a folder that holds `tasks.py`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = "sqlite:///jobs.db"

    def __call__(
        self,
        *args: str,
        typed: str | None = None,
        app: str | None = "tasks:app",
        colour: bool = False,
    ) -> Result:
        env = {"OUTLAST_APP": app, "OUTLAST_URL": None, "NO_COLOR": None if colour else "1"}
        return CliRunner().invoke(main, args, input=typed, env=env)

    def out(self, *args: str, **more: Any) -> str:
        """What it printed, if it ended well."""
        result = self(*args, **more)
        assert result.exit_code == 0, (result.exit_code, result.output, result.exception)
        return result.stdout

    def documents(self, *args: str) -> list[Any]:
        """The objects it printed."""
        return [json.loads(line) for line in self.out(*args, "--json").splitlines()]

    def enqueue(self, *args: str) -> str:
        return self.out("enqueue", *args).strip()

    def burst(self) -> None:
        """Run what is due, in this process."""

        async def run() -> None:
            app = load_app("tasks:app")
            async with app, app.worker(queues=["default", "mail", "studio"]) as worker:
                await worker.drained()

        asyncio.run(run())


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    (tmp_path / "tasks.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("tasks", None)
    yield Cli(tmp_path)
    sys.modules.pop("tasks", None)


@pytest.fixture
def worker(cli: Cli) -> Iterator[subprocess.Popen[bytes]]:
    """A real worker of the app in that folder."""
    program = [sys.executable, "-m", "outlast", "worker", "tasks:app", "--log-level", "error"]
    with subprocess.Popen(program, cwd=cli.folder) as process:
        yield process
        process.terminate()

"""Worker processes of the tour."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from outlast.demo.jobs import URL_VARIABLE

APP: Final = "outlast.demo.jobs:app"
QUEUES: Final = "default,reports,studio,long"


class DemoWorkers:
    """Starts, stops and kills workers by name; each one leads its own session."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._env = {**os.environ, URL_VARIABLE: url}
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a worker; its output goes to `<name>.log` in the folder."""
        program = [sys.executable, "-m", "outlast", "worker", APP]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._workers[name] = subprocess.Popen(  # noqa: S603 - our own program
                [*program, "--instance-id", name, "--queues", QUEUES, "--concurrency", "4"],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> int:
        """Send SIGKILL to a worker and its children, and return the exit code of the worker."""
        worker = self._workers.pop(name)
        os.killpg(worker.pid, signal.SIGKILL)
        return worker.wait()

    def stop(self) -> list[int]:
        """Send SIGTERM to the remaining workers and return their exit codes."""
        for worker in self._workers.values():
            worker.terminate()
        codes = [worker.wait(timeout=60) for worker in self._workers.values()]
        self._workers.clear()
        return codes

    def kill_all(self) -> None:
        """Kill every remaining worker."""
        for name in tuple(self._workers):
            self.kill(name)

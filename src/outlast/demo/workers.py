"""The tour's workers: real processes, which can really be killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from outlast.demo.jobs import URL

APP: Final = "outlast.demo.jobs:app"
QUEUES: Final = "default,reports,studio,long"


class DemoWorkers:
    """Workers by name, each the head of a session of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._env = {**os.environ, URL: url}
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
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
        """SIGKILL for it and all its children: it gets no chance to say anything."""
        worker = self._workers.pop(name)
        os.killpg(worker.pid, signal.SIGKILL)
        return worker.wait()

    def stop(self) -> list[int]:
        """SIGTERM for whoever is left; their exit codes."""
        for worker in self._workers.values():
            worker.terminate()
        codes = [worker.wait(timeout=60) for worker in self._workers.values()]
        self._workers.clear()
        return codes

    def drop(self) -> None:
        """Whatever happened: leave nobody behind."""
        for name in tuple(self._workers):
            self.kill(name)

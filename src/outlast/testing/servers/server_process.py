"""One server program in a folder of its own; it ends with the last holder of its lock."""

import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outlast.testing.servers import process_tree

PORTS: Final = range(30_000, 32_700)
"""Below the ephemeral ports, so no client takes a port while its server is down."""

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of our own is made there
START_TIMEOUT_S: Final = 120.0
"""Seconds that a start may take on a busy machine."""


class ServerFailed(Exception):
    """A server ended or did not answer in time; the message holds its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProcess:
    """A server started by `words`, which contain `folder/data`: it is found and ended by that."""

    folder: Path
    words: tuple[str, ...]

    @property
    def data(self) -> Path:
        """Return the data folder."""
        return self.folder / process_tree.DATA

    @property
    def log(self) -> str:
        """Return what the server has printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    @property
    def is_running(self) -> bool:
        """Whether a process of the server is alive."""
        return any(process_tree.is_alive(pid) for pid in process_tree.serving(self.data))

    def start(self, *, env: Mapping[str, str] | None = None) -> None:
        """Start the program; `wait` returns when it answers."""
        self.data.mkdir(mode=0o700, exist_ok=True)
        with self._log.open("ab") as log:
            # A grandchild: this process need not reap it.
            subprocess.run(  # noqa: S603 - a program that we chose
                ["/bin/sh", "-c", '"$@" & exit 0', "sh", *self.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(env or {})},
                cwd=self.folder,
                check=True,
            )

    def wait(self, answers: Callable[[], bool]) -> None:
        """Wait until the server answers; ServerFailed if it takes too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers():
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.words[0]} does not answer: {self.log[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it with SIGKILL, as a power failure would."""
        process_tree.kill_all(self.data)


def new_folder(name: str) -> Path:
    """Return a new folder, in memory where the system has a memory file system."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix=f"outlast-{name}-", dir=memory))


def free_ports(count: int) -> Sequence[int]:
    """Return that many free ports; each process starts its search elsewhere."""
    start = os.getpid() * 61 + secrets.randbelow(1_000)
    found: list[int] = []
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        if len(found) < count and _is_free(port):
            found.append(port)
    if len(found) < count:
        raise ServerFailed(f"fewer than {count} ports from {PORTS.start} to {PORTS.stop} are free")
    return found


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as trial, suppress(OSError):
        trial.bind(("127.0.0.1", port))
        return True
    return False

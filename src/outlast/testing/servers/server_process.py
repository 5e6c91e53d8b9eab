"""One server program: started in a folder of its own, gone with whoever holds its lock."""

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
"""Below those that a system gives to clients: none takes ours while the server is down."""

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of our own is made there
PATIENCE: Final = 120.0
"""Seconds for a start, on a busy machine."""


class ServerFailed(Exception):
    """A server ended, or did not answer in time; what it said is in the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProcess:
    """`words` start it; `folder/data` is among them, by which it is known and ended."""

    folder: Path
    words: tuple[str, ...]

    @property
    def data(self) -> Path:
        return self.folder / process_tree.DATA

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    @property
    def is_running(self) -> bool:
        return any(process_tree.is_alive(pid) for pid in process_tree.serving(self.data))

    def start(self, *, env: Mapping[str, str] | None = None) -> None:
        """Let it run; `wait` tells when it answers."""
        self.data.mkdir(mode=0o700, exist_ok=True)
        with self._log.open("ab") as log:
            # A child of a child: nobody here has to wait for its end.
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
        """Until it answers; ServerFailed if it has ended, or takes too long."""
        deadline = time.monotonic() + PATIENCE
        while not answers():
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.words[0]} does not answer: {self.log[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """`kill -9`, as if its machine had lost its power."""
        process_tree.kill_all(self.data)


def new_folder(name: str) -> Path:
    """In memory, where the system has such a place: what is kept there is not for long."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix=f"outlast-{name}-", dir=memory))


def free_ports(count: int) -> Sequence[int]:
    """So many where nobody listens now; each process looks from a place of its own."""
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

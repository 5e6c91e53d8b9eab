"""A real `outlast worker` and every process that descends from it, to be killed or frozen."""

import json
import os
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals
from typing import Any, Final

import outlast

TESTS: Final = Path(__file__).resolve().parent.parent
PROGRAM: Final = "from outlast.cli.main import main; main()"
APP: Final = "chaos.worker_app:app"
MARK: Final = "CHAOS_TREE"
PATIENCE: Final = 120.0
"""Seconds after which something counts as stuck; nothing waits that long when all is well."""

QUICK: Final = {"lease": "60s", "renew": "300ms", "tick": "100ms", "poll": "50ms", "grace": "60s"}
SHORT: Final = {"lease": "1500ms"}
"""For tests that wait for an expired lease; others would lose some on a busy machine."""
LONG: Final = {"lease": "10m"}
"""A lease that outlasts every test: what happens meanwhile happens for another reason."""


def until(is_so: Callable[[], Any], *, within: float = PATIENCE, what: str = "it") -> Any:
    """Wait for what another process does; its answer. AssertionError names what did not come."""
    end = time.monotonic() + within
    while not (answer := is_so()):
        assert time.monotonic() < end, f"after {within} s there is still no sign of {what}"
        time.sleep(0.01)
    return answer


class WorkerTree:
    """Known by a mark in its environment, which its orphans bear too."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        app: str = APP,
        program: str = PROGRAM,
        env: dict[str, str] | None = None,
        **over,
    ) -> None:
        self._mark = uuid.uuid4().hex
        self._log = folder / f"{self._mark}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, "worker", app, *options],
                stderr=log,
                stdout=log,
                stdin=subprocess.DEVNULL,
                cwd=TESTS,
                env=_environment(folder, over) | {MARK: self._mark} | (env or {}),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def lines(self, *words: str) -> list[str]:
        return [line for line in self.log.splitlines() if all(word in line for word in words)]

    def ready(self, children: int = 1) -> "WorkerTree":
        """Once that many children take jobs."""
        reported = "the tree at work"
        until(
            lambda: self.code is not None or len(self.lines("child started")) >= children,
            what=reported,
        )
        assert self.code is None, self.log
        return self

    @property
    def code(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._process.poll()

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def members(self) -> list[int]:
        """The living, the supervisor first."""
        return sorted(pid for pid in _pids() if _has_mark(pid, self._mark))

    def children(self) -> list[int]:
        return [pid for pid in self.members() if pid != self.pid]

    def signal(self, what: Signals) -> None:
        self._process.send_signal(what)

    def signal_group(self, what: Signals) -> None:
        """As a terminal or a process manager does: every process of the group receives it."""
        os.killpg(self.pid, what)

    def has_heard(self) -> bool:
        """Whether no signal to the supervisor is still on its way."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        pending = [line.split()[1] for line in status.splitlines() if "Pnd:" in line]
        return not any(int(mask, 16) for mask in pending)

    def kill(self) -> float:
        """kill -9 of everything at one moment; which (wall time)."""
        _send(SIGSTOP, [self.pid] if self.code is None else [])  # so that it starts no child
        _send(SIGSTOP, self.members())  # and so that none lives to see another one die
        at = time.time()
        while left := self.members():
            _send(SIGKILL, left)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.01)
        self._process.wait(PATIENCE)
        return at

    def kill_supervisor(self) -> float:
        self._process.kill()
        self._process.wait(PATIENCE)
        return time.monotonic()

    def gone(self) -> None:
        until(lambda: not self.members(), what=f"the end of {self._mark}")

    def freeze(self, path: Path) -> None:
        """Stop all of it, but not during a write, which would block every other writer."""
        while True:
            freeze(self.members())
            if _can_write(path):
                return
            self.thaw()
            time.sleep(0.01)

    def thaw(self) -> None:
        thaw(self.members())


def freeze(pids: list[int]) -> None:
    """SIGSTOP, and wait until every thread of each stands still."""
    for pid in pids:
        os.kill(pid, SIGSTOP)
    until(lambda: all(_stands_still(pid) for pid in pids), what="processes standing still")


def thaw(pids: list[int]) -> None:
    for pid in reversed(pids):
        with suppress(ProcessLookupError):
            os.kill(pid, SIGCONT)


def freeze_one(pid: int, path: Path) -> None:
    """The same for one process alone."""
    while True:
        freeze([pid])
        if _can_write(path):
            return
        thaw([pid])
        time.sleep(0.01)


@contextmanager
def worker_trees(folder: Path) -> Iterator[Callable[..., WorkerTree]]:
    """Grows trees, and fells every one of them at the end, whatever happened."""
    grown: list[WorkerTree] = []

    def grow(*options: str, **over: Any) -> WorkerTree:
        grown.append(WorkerTree(folder, *options, **over))
        return grown[-1]

    try:
        yield grow
    finally:
        for tree in grown:
            tree.kill()


def _environment(folder: Path, over: dict[str, Any]) -> dict[str, str]:
    found_in = [str(Path(outlast.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, found_in)),
        "CHAOS_FOLDER": str(folder),
        "CHAOS_SETTINGS": json.dumps({**QUICK, **over}),
    }


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _has_mark(pid: int, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _stands_still(pid: int) -> bool:
    with suppress(OSError):
        threads = Path(f"/proc/{pid}/task").glob("*/stat")
        return all(stat.read_text().rpartition(")")[2].split()[0] in "TZX" for stat in threads)
    return True


def _can_write(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as probe, suppress(sqlite3.OperationalError):
        probe.execute("PRAGMA busy_timeout = 0")
        probe.execute("BEGIN IMMEDIATE")
        return True
    return False


def _send(what: Signals, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)

"""Notes of handlers: lines in a file that outlives its writer."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from outlast import Run


@dataclass(frozen=True, slots=True)
class Note:
    """One line; `at` is of the clock that all processes share."""

    what: str
    job: str
    token: int
    pid: int
    at: float


class Notes:
    """One write per line, appended: no two writers share one, and a killed one leaves it whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "notes"
        self._fd = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def add(self, what: str, run: Run) -> None:
        line = f"{what} {run.job_id} {run.token} {os.getpid()} {time.monotonic()}\n"
        os.write(self._fd, line.encode())

    def all(self, what: str = "start") -> list[Note]:
        lines = [line.split() for line in self._path.read_text().splitlines()]
        return [
            Note(word, job, int(token), int(pid), float(at))
            for word, job, token, pid, at in lines
            if word == what
        ]

    def of(self, job: str, what: str = "start") -> list[Note]:
        return [note for note in self.all(what) if note.job == job]

    def under_way(self) -> list[Note]:
        """The starts that no end follows, so far."""
        over = {(note.job, note.token) for note in self.all("end")}
        return [note for note in self.all() if (note.job, note.token) not in over]

    def gate(self, name: str) -> Path:
        return self._folder / f"gate-{name}"

    def open_gate(self, name: str) -> None:
        self.gate(name).touch()

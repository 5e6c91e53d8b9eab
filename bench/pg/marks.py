"""Marks that handlers write for the measurement: number of starts, first start, delays.

Each worker process has one memory-mapped file. A mark costs half a microsecond and survives the
end of the process.
"""

import mmap
import os
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = "OUTLAST_BENCH_MARKS"
SLOTS = 20_000
"""How many delays are recorded per process."""

HEAD = 2
SIZE = 8 * (HEAD + SLOTS)


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of all processes."""

    count: int
    first: float  # by the monotonic clock, which all processes of a machine share
    waits: list[float]


class _Page:
    def __init__(self, folder: str) -> None:
        path = Path(folder, f"{os.getpid()}.marks")
        path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            self.view = memoryview(mmap.mmap(file.fileno(), SIZE)).cast("d")
        self.count = 0


_pages: dict[int, _Page] = {}


def hit(sent: float) -> None:
    """Record the start of a handler; handlers call it first."""
    page = _pages.get(0) or _open()
    count = page.count
    if not count:
        page.view[1] = time.monotonic()
    if count < SLOTS:
        page.view[HEAD + count] = time.time() - sent
    page.count = count + 1
    page.view[0] = count + 1


def _open() -> _Page:
    _pages[0] = _Page(os.environ[FOLDER])
    return _pages[0]


def clear(folder: Path) -> None:
    """Delete all marks, before workers are started."""
    for path in folder.glob("*.marks"):
        path.unlink()


def count(folder: Path) -> int:
    """Return how many handlers have started."""
    return sum(int(head[0]) for _, head in _heads(folder))


def read(folder: Path) -> Marks:
    heads = [(path, head) for path, head in _heads(folder) if head[0]]
    return Marks(
        count=sum(int(head[0]) for _, head in heads),
        first=min((head[1] for _, head in heads), default=0.0),
        waits=[wait for path, head in heads for wait in _waits(path, int(head[0]))],
    )


def _heads(folder: Path) -> Iterator[tuple[Path, "array[float]"]]:
    for path in folder.glob("*.marks"):
        with path.open("rb") as file:
            data = file.read(8 * HEAD)
        if len(data) == 8 * HEAD:
            yield path, array("d", data)


def _waits(path: Path, jobs: int) -> "array[float]":
    return array("d", path.read_bytes()[8 * HEAD : 8 * (HEAD + min(jobs, SLOTS))])

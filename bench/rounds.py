"""Alternating rounds of Outlast and Huey, each in a new process on a new file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import child
from bench.figures import FIGURES, Line, Series
from bench.progress import tell

Taken = dict[str, list[dict[str, float]]]
"""By side, the figures of each round."""

OURS = "outlast"
HUEY = "huey"


def lines(what: str, folder: Path, *, jobs: int, rounds: int, huey: bool) -> list[Line]:
    """Run one measurement in alternating rounds; return one line per figure."""
    taken = _take(what, folder, jobs, rounds, (OURS, HUEY) if huey else (OURS,))
    return [
        Line(
            figure,
            _series(taken[OURS], figure.key),
            _series(taken[HUEY], figure.key) if huey else None,
        )
        for figure in FIGURES
        if figure.what == what
    ]


def settings(folder: Path, *, huey: bool) -> dict[str, dict[str, object]]:
    """Return the effective pragmas of a connection of each side."""
    found = {}
    for side in (OURS, HUEY) if huey else (OURS,):
        with _file(folder, side) as path:
            child.measure(side, "bulk", path, 10)  # so that the file is as it will be
            found[side] = child.pragmas(side, path)
    return found


def _take(what: str, folder: Path, jobs: int, rounds: int, sides: Sequence[str]) -> Taken:
    taken: Taken = {side: [] for side in sides}
    for number in range(1, rounds + 1):
        for side in sides:
            tell(f"{what}, round {number} of {rounds}, {side}")
            taken[side].append(_once(side, what, folder, jobs))
    tell()
    return taken


def _once(side: str, what: str, folder: Path, jobs: int) -> dict[str, float]:
    with _file(folder, side) as path:
        if what == "drain":
            child.measure(side, "bulk", path, jobs)
        return child.measure(side, what, path, jobs)


def _series(taken: list[dict[str, float]], key: str) -> Series:
    return Series([figures[key] for figures in taken])


@contextmanager
def _file(folder: Path, side: str) -> Iterator[Path]:
    path = folder / f"{side}.db"
    try:
        yield path
    finally:
        for left in folder.glob(f"{side}.db*"):
            left.unlink()

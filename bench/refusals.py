"""What it costs to refuse params that are too large: milliseconds of CPU, whatever their size."""

from collections.abc import Callable
from time import process_time
from typing import Any, Final

from bench.figures import Series
from bench.progress import tell
from bench.report import spread
from outlast import Outlast, PayloadTooLarge

LARGE: Final[dict[str, Callable[[], Any]]] = {
    "a text of 64 MB": lambda: "x" * 64_000_000,
    "a list of 4,000,000": lambda: [0] * 4_000_000,
    "a dict of 1,000,000": lambda: dict.fromkeys(range(1_000_000)),
    "lists of lists, 10 to the power of 10": lambda: _nested(),
    "an integer of 100,000 digits": lambda: 10**100_000,
}


def measure(*, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of CPU for each kind of params, round by round."""
    job = Outlast("sqlite:///unused.db").job(name="keep")(_keep)
    found: dict[str, list[float]] = {}
    for number in range(1, rounds + 1):
        tell(f"refusals, round {number} of {rounds}")
        for name, make in LARGE.items():
            found.setdefault(name, []).append(_refused(job.bind, make()))
    tell()
    return found


def lines(found: dict[str, list[float]]) -> list[str]:
    """The median of each, the least and the most."""
    return [f"refuse {name}, ms of CPU: {spread(Series(v), 2)}" for name, v in found.items()]


def _refused(bind: Callable[..., object], data: Any) -> float:
    began = process_time()
    try:
        bind(data=data)
    except PayloadTooLarge:
        return (process_time() - began) * 1000
    raise AssertionError("it was not refused")


def _keep(data: Any) -> None:
    """Never runs."""


def _nested() -> list[Any]:
    value: list[Any] = ["ha"] * 10
    for _ in range(9):
        value = [value] * 10
    return value

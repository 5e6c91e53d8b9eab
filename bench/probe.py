"""Shared by both sides: the probe of the handler, the pace and the arithmetic."""

from collections.abc import Callable
from time import perf_counter

LIMIT = 600.0
"""Timeout of a measurement in seconds."""

GAP = 0.005
"""Seconds between two jobs of the pick-up measurement, so that the worker is idle again."""

WARM = 20
"""Number of first jobs that are not counted, because they open connections and fill caches."""


class Probe:
    """Records the starts of handlers; calls `full` when the expected number has started."""

    def __init__(self, jobs: int = 0, full: Callable[[], None] = lambda: None) -> None:
        self.first = 0.0
        self.waits: list[float] = []
        self._jobs = jobs
        self._full = full

    def hit(self, sent: float) -> None:
        now = perf_counter()
        if not self.waits:
            self.first = now
        self.waits.append(now - sent)
        if len(self.waits) == self._jobs:
            self._full()


def rate(jobs: int, since: float) -> dict[str, float]:
    """Return the jobs per second since `since`, a value of `perf_counter`."""
    return {"per_second": jobs / (perf_counter() - since)}


def pick_up(waits: list[float]) -> dict[str, float]:
    """Return the median and the 99th percentile of the waits after the warm-up, in ms."""
    ordered = sorted(waits[WARM:])
    return {
        "p50_ms": 1000 * ordered[len(ordered) // 2],
        "p99_ms": 1000 * ordered[len(ordered) * 99 // 100],
    }

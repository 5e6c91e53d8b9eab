"""Shared by both sides: the probe of the handler, the pace and the arithmetic."""

from collections.abc import Callable
from time import perf_counter

LIMIT = 600.0
"""No measurement takes longer, in seconds."""

GAP = 0.005
"""One job each 5 ms when pick-up is measured: long enough for the worker to be idle again."""

WARM = 20
"""The first few jobs of that open connections and fill caches; they are not counted."""


class Probe:
    """Called first thing by the handler; calls `full` once as many as expected have started."""

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
    """Jobs per second from that reading of `perf_counter` until now."""
    return {"per_second": jobs / (perf_counter() - since)}


def pick_up(waits: list[float]) -> dict[str, float]:
    """The middle and the slow end of the waits after the warm-up, in milliseconds."""
    ordered = sorted(waits[WARM:])
    return {
        "p50_ms": 1000 * ordered[len(ordered) // 2],
        "p99_ms": 1000 * ordered[len(ordered) * 99 // 100],
    }

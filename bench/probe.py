"""What every handler under measurement does: note when it started, and count."""

from collections.abc import Callable
from time import perf_counter


class Probe:
    """Called first thing by the handler of either system; `full` once all have started."""

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


def waits(seconds: list[float]) -> dict[str, float]:
    """The middle and the slow end of many waits, in milliseconds."""
    ordered = sorted(seconds)
    return {
        "p50_ms": 1000 * ordered[len(ordered) // 2],
        "p99_ms": 1000 * ordered[len(ordered) * 99 // 100],
    }

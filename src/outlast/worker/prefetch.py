"""The prefetch budget: how many jobs to claim ahead, by their measured run time and size."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from math import inf
from operator import attrgetter
from typing import Final

from outlast.core.run import Claim

PREFETCH_TARGET_S: Final = 1.0
"""Seconds of work to prefetch: a job must not wait here while another worker is idle."""

MAX_PREFETCH_WAIT_S: Final = 2 * PREFETCH_TARGET_S
"""Seconds a prefetched job may be expected to wait; beyond that it is released."""

MAX_PREFETCHED_BYTES: Final = 16 * 1024 * 1024
"""Params of all prefetched jobs, so that large payloads do not fill the memory."""

AVERAGE_WEIGHT: Final = 0.05
"""Weight of the latest run in the moving average of its type."""

_TYPE: Final = attrgetter("type")


class PrefetchBudget:
    """Keeps a moving average of the run time of each job type."""

    def __init__(self, *, concurrency: int, limit: int) -> None:
        self._concurrency = concurrency
        self._limit = limit
        self._averages: dict[str, float] = {}
        self._overall = 0.0
        self._largest = 0  # params of a job, in any claim
        self._latest = 1.0  # params of a job, in the latest claim on average

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Record the size of claimed jobs."""
        sizes = [len(claim.params) for claim in claims]
        self._largest = max(self._largest, *sizes)
        self._latest = max(1.0, sum(sizes) / len(sizes))

    def ended(self, kind: str, seconds: float) -> None:
        """Record how long a job of a type took."""
        average = self._averages.get(kind, seconds)
        self._averages[kind] = average + (seconds - average) * AVERAGE_WEIGHT
        overall = self._overall
        self._overall = overall + (seconds - overall) * AVERAGE_WEIGHT if overall else seconds

    def still_running(self, kind: str, seconds: float) -> None:
        """Raise the average of a type whose job has been running longer than that."""
        if self._averages.get(kind, 0.0) < seconds:
            self._averages[kind] = seconds

    def room(self, prefetched: Collection[Claim]) -> int:
        """Return how many more jobs to prefetch."""
        if not self._overall:
            return 0
        work = self._work(prefetched)
        each = max(self._overall, work / len(prefetched)) if prefetched else self._overall
        missing = (PREFETCH_TARGET_S * self._concurrency - work) / each
        free = min(self._limit - len(prefetched), missing, self._room_by_size(prefetched))
        return int(max(0.0, free))

    def _room_by_size(self, prefetched: Collection[Claim]) -> float:
        if self._largest * self._limit <= MAX_PREFETCHED_BYTES:
            return inf
        held = sum(len(claim.params) for claim in prefetched)
        return (MAX_PREFETCHED_BYTES - held) / self._latest

    def excess(self, waiting: Sequence[Claim]) -> list[Claim]:
        """Return the last of these claims, those expected to wait longer than allowed."""
        left = MAX_PREFETCH_WAIT_S * self._concurrency
        if self._work(waiting) <= left:
            return []
        for index, claim in enumerate(waiting):
            left -= self._seconds(claim.type)
            if left < 0:
                return list(waiting[index:])
        return []

    def _work(self, claims: Iterable[Claim]) -> float:
        counts = Counter(map(_TYPE, claims))
        return sum(count * self._seconds(kind) for kind, count in counts.items())

    def _seconds(self, kind: str) -> float:
        return self._averages.get(kind, self._overall)

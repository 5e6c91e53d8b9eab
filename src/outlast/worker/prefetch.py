"""How much work to hold ready, counted in time: by how long the jobs of each type take."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Final

from outlast.core.run import Claim

PREFETCH_TARGET_S: Final = 1.0
"""How many seconds of work to hold ready: a job must not wait here while another worker is idle."""

MAX_PREFETCH_WAIT_S: Final = 2 * PREFETCH_TARGET_S
"""Whoever would have to wait longer than that is for others to take."""

AVERAGE_WEIGHT: Final = 0.05
"""How much one job says about the next."""

_TYPE: Final = attrgetter("type")


class PrefetchBudget:
    """Learns from every job that ends, and from every one that does not."""

    def __init__(self, *, concurrency: int, most: int) -> None:
        self._concurrency = concurrency
        self._most = most
        self._averages: dict[str, float] = {}
        self._any = 0.0

    def ended(self, kind: str, seconds: float) -> None:
        """A job of that type took that long."""
        average = self._averages.get(kind, seconds)
        self._averages[kind] = average + (seconds - average) * AVERAGE_WEIGHT
        self._any = self._any + (seconds - self._any) * AVERAGE_WEIGHT if self._any else seconds

    def still_running(self, kind: str, seconds: float) -> None:
        """One of that type has been running that long: what is learnt of it comes too late."""
        if self._averages.get(kind, 0.0) < seconds:
            self._averages[kind] = seconds

    def room(self, ready: Collection[Claim]) -> int:
        """How many more than those that are ready make up the work to have at hand."""
        if not self._any:
            return 0
        work = self._work(ready)
        each = max(self._any, work / len(ready)) if ready else self._any
        worth = (PREFETCH_TARGET_S * self._concurrency - work) / each
        return int(max(0.0, min(self._most - len(ready), worth)))

    def excess(self, waiting: Sequence[Claim]) -> list[Claim]:
        """Those of them, the last ones, that would have to wait for too long."""
        left = MAX_PREFETCH_WAIT_S * self._concurrency
        if self._work(waiting) <= left:
            return []
        for place, claim in enumerate(waiting):
            left -= self._seconds(claim.type)
            if left < 0:
                return list(waiting[place:])
        return []

    def _work(self, claims: Iterable[Claim]) -> float:
        return sum(many * self._seconds(kind) for kind, many in Counter(map(_TYPE, claims)).items())

    def _seconds(self, kind: str) -> float:
        return self._averages.get(kind, self._any)

"""Where a worker may begin to look: what lies before was taken, and only its remains are left."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

TWICE: Final = 2
"""How many slow looks there must be in a row: one may be chance."""

SPARING: Final = 10
"""A full look is repeated when so many times its own duration have passed."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When a look for jobs counts as slow: by its seconds at the server, and by its share.

    On a busy machine the whole claim takes longer, so the look must also take most of it.
    """

    seconds: float = 0.004
    share: float = 0.5

    def is_slow(self, look: "ClaimScan") -> bool:
        return look.looked > self.seconds and look.looked > look.seconds * self.share


TIMELESS: Final = Pace(seconds=inf)
"""Nothing is slow: for a store on a test's clock, where only the test makes time pass."""


@dataclass(frozen=True, slots=True)
class ClaimScan:
    """How a claim went: how far it came by type, how long it looked, how long all of it took."""

    lasts: Sequence[bytes | None]
    looked: float
    seconds: float
    was_full: bool = field(kw_only=True)


class ScanFloors:
    """Remembers, for each queue whose claims are slow, up to where each type was taken.

    Rows that were taken stay in the index until they are vacuumed away, which a transaction held
    open anywhere prevents; every full look goes through them all. The price: what comes below a
    floor meanwhile, at the same priority, is late by up to ten times the duration of a full look.
    """

    def __init__(self, time: Callable[[], float], pace: Pace) -> None:
        self._time = time
        self.pace = pace
        self._queues: dict[str, _Floor] = {}

    def of(self, queue: str, types: Sequence[str]) -> list[bytes]:
        """Where to begin for each type; empty for a full look."""
        floor = self._queues.get(queue)
        if floor is None or self._time() >= floor.until:
            return [b""] * len(types)
        return [floor.types.get(kind, b"") for kind in types]

    def learn(self, queue: str, types: Sequence[str], look: ClaimScan) -> None:
        """From a claim of these types, which it was asked for in this order."""
        if look.was_full:
            self._restart(queue, look)
        floor = self._queues.get(queue)
        if floor is not None:
            for kind, last in zip(types, look.lasts, strict=False):
                if last is not None:
                    floor.types[kind] = max(last, floor.types.get(kind, b""))

    def _restart(self, queue: str, look: ClaimScan) -> None:
        before = self._queues.pop(queue, None)
        if self.pace.is_slow(look):
            times = 1 + (before.times if before else 0)
            until = self._time() + SPARING * look.looked if times >= TWICE else 0.0
            self._queues[queue] = _Floor(times, until)


@dataclass(slots=True)
class _Floor:
    times: int  # full looks in a row that were slow
    until: float
    types: dict[str, bytes] = field(default_factory=dict)

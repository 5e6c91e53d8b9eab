"""Scan floors: where a claim starts in the index, past dead rows of claimed jobs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

SLOW_SCANS_BEFORE_FLOOR: Final = 2
"""Number of consecutive slow scans after which a floor is used: one may be chance."""

FULL_SCAN_INTERVAL: Final = 10
"""A full scan is repeated after this multiple of its own duration."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When a scan counts as slow: by its seconds at the server, and by its share of the claim.

    On a busy machine the whole claim takes longer, so the scan must also take most of it.
    """

    seconds: float = 0.004
    share: float = 0.5

    def is_slow(self, scan: "ClaimScan") -> bool:
        """Return whether the scan was slow."""
        return scan.scan_seconds > self.seconds and (
            scan.scan_seconds > scan.total_seconds * self.share
        )


TIMELESS: Final = Pace(seconds=inf)
"""No scan is slow: for a store on a test's clock, where only the test makes time pass."""


@dataclass(frozen=True, slots=True)
class ClaimScan:
    """How far a claim scanned by type, and the seconds of its scan and of the whole claim."""

    lasts: Sequence[bytes | None]
    scan_seconds: float
    total_seconds: float
    was_full: bool = field(kw_only=True)


class ScanFloors:
    """The last claimed order of each type, for queues whose scans are slow.

    Claimed rows stay in the index until they are vacuumed, which any open transaction prevents;
    every full scan reads them all. The cost: a job that is inserted below a floor, at the same
    priority, is claimed late by up to `FULL_SCAN_INTERVAL` times the duration of a full scan.
    """

    def __init__(self, time: Callable[[], float], pace: Pace) -> None:
        self._time = time
        self.pace = pace
        self._queues: dict[str, _Floor] = {}

    def of(self, queue: str, types: Sequence[str]) -> list[bytes]:
        """Return the floor of each type; empty values for a full scan."""
        floor = self._queues.get(queue)
        if floor is None or self._time() >= floor.until:
            return [b""] * len(types)
        return [floor.types.get(name, b"") for name in types]

    def learn(self, queue: str, types: Sequence[str], scan: ClaimScan) -> None:
        """Raise the floors by the scan of a claim, whose types are in the same order."""
        if scan.was_full:
            self._restart(queue, scan)
        floor = self._queues.get(queue)
        if floor is not None:
            for name, last in zip(types, scan.lasts, strict=False):
                if last is not None:
                    floor.types[name] = max(last, floor.types.get(name, b""))

    def _restart(self, queue: str, scan: ClaimScan) -> None:
        before = self._queues.pop(queue, None)
        if self.pace.is_slow(scan):
            slow_scans = 1 + (before.slow_scans if before else 0)
            pause = FULL_SCAN_INTERVAL * scan.scan_seconds
            is_used = slow_scans >= SLOW_SCANS_BEFORE_FLOOR
            self._queues[queue] = _Floor(slow_scans, self._time() + pause if is_used else 0.0)


@dataclass(slots=True)
class _Floor:
    slow_scans: int  # consecutive full scans that were slow
    until: float  # time of the next full scan
    types: dict[str, bytes] = field(default_factory=dict)

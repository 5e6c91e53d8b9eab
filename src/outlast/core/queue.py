"""What a queue lets through: its pause, its limit, its reservation."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from outlast.core.limits import MAX_REASON, is_storable, repr_short
from outlast.errors import InvalidArgument

MOST_CONCURRENCY: Final = 1_000_000
MOST_GAP: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Nothing of the queue is claimed until that moment; None: until somebody resumes it."""

    at: datetime
    reason: str | None = None
    until: datetime | None = None

    def is_over(self, now: datetime) -> bool:
        return self.until is not None and self.until <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGate:
    """What a claim meets at a queue, at one moment."""

    is_paused: bool = False
    concurrency: int | None = None
    open_runs: int = 0
    is_reserved: bool = False

    def capacity(self, limit: int, prefetch: int) -> tuple[int, int]:
        """How many of those asked for, to run now and to have at hand, it lets through.

        Nothing is taken in advance where runs are counted: what waits in one worker's hands would
        hold a place that another could use.
        """
        if self.is_paused:
            return 0, 0
        if self.is_reserved:
            limit, prefetch = min(limit, 1), 0
        if self.concurrency is None:
            return limit, prefetch
        return max(0, min(limit, self.concurrency - self.open_runs)), 0

    @property
    def keeps_reservation(self) -> bool:
        """Whether a reservation outlasts the claim of its job: only where one runs at a time."""
        return self.concurrency == 1


def check_concurrency(value: int | None) -> int | None:
    """`value`, if it can limit a queue; InvalidArgument otherwise."""
    return None if value is None else _whole(value, "concurrency", MOST_CONCURRENCY)


def check_gap(value: int) -> int:
    """`value`, if it can be the distance between two positions."""
    return _whole(value, "gap", MOST_GAP)


def check_reason(value: str | None, *, what: str) -> str | None:
    """`value`, if it is free text that every store can keep."""
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_REASON or not is_storable(value):
        raise InvalidArgument(
            f"{what} is {repr_short(value)}; use text of 1 to {MAX_REASON:,} characters without NUL"
        )
    return value


def _whole(value: int, what: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidArgument(
            f"{what} is {repr_short(value)}; use a whole number from 1 to {most:,}"
        )
    return value

"""Claim order of the jobs of one queue, and arithmetic of positions."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

GAP: Final = 100
"""Default distance between two positions."""


class Ordering(StrEnum):
    """How a queue positions a new job among those of its priority."""

    SCHEDULED = "scheduled"  # by due time: position 0, no lock on enqueue
    POSITION = "position"  # by explicit position: after the last job


class Orderable(Protocol):
    """Anything with a position in a queue."""

    @property
    def priority(self) -> int:
        """Priority; higher goes first."""
        ...

    @property
    def position(self) -> int:
        """Position; 0 if it has none."""
        ...

    @property
    def available_at(self) -> datetime:
        """When it is due."""
        ...

    @property
    def created_at(self) -> datetime:
        """When it was created."""
        ...

    @property
    def seq(self) -> int:
        """Number in order of storage; unique."""
        ...


def sort_key(job: Orderable) -> tuple[int, int, datetime, datetime, int]:
    """Return the key of the claim order.

    `priority DESC, position ASC, available_at ASC, created_at ASC, seq ASC`. Only stored fields
    take part, and `seq` is unique, so the order is total.
    """
    return (-job.priority, job.position, job.available_at, job.created_at, job.seq)


def next_position(highest: int | None, gap: int = GAP) -> int:
    """Return the position behind all waiting jobs of a priority, whose `highest` position is given.

    0 means no position. It is a barrier: jobs moved before those without one have a negative
    position, jobs moved behind them a positive one. The result is always positive.
    """
    return max(0, highest or 0) + gap


def first_position(lowest: int | None, gap: int = GAP) -> int:
    """Return the position before all waiting jobs of a priority; always negative."""
    return min(0, lowest or 0) - gap


def distribute_positions(number: int, low: int | None, high: int | None, step: int) -> list[int]:
    """Return `number` rising positions between `low` and `high`, both excluded.

    With two bounds they are spread evenly; the interval must be wide enough. Where a bound is
    None they are `step` apart, counted from the other.
    """
    if high is None:
        return [(low or 0) + step * n for n in range(1, number + 1)]
    if low is None:
        return [high - step * n for n in range(number, 0, -1)]
    return [low + (high - low) * n // (number + 1) for n in range(1, number + 1)]


def renumber_positions(positions: Sequence[int], ordering: Ordering, gap: int = GAP) -> list[int]:
    """Return evenly spaced positions for the jobs of one priority, given in claim order.

    The order stays. In a `position` queue they are gap, 2 gap, 3 gap …; in a `scheduled` queue
    only moved jobs have a position, and keep its sign.
    """
    if ordering is Ordering.POSITION:
        return distribute_positions(len(positions), 0, None, gap)
    front = sum(position < 0 for position in positions)
    back = sum(position > 0 for position in positions)
    unplaced = [0] * (len(positions) - front - back)
    return [
        *distribute_positions(front, None, 0, gap),
        *unplaced,
        *distribute_positions(back, 0, None, gap),
    ]

"""The order in which the jobs of one queue are taken."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

GAP: Final = 100


class Ordering(StrEnum):
    """How a queue places a new job among those of its priority."""

    SCHEDULED = "scheduled"  # by due time: position 0, enqueueing takes no lock
    POSITION = "position"  # by explicit position: each new one after the last


class Orderable(Protocol):
    """Anything that has a place in a queue."""

    @property
    def priority(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def available_at(self) -> datetime: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def seq(self) -> int: ...


def sort_key(job: Orderable) -> tuple[int, int, datetime, datetime, int]:
    """`priority DESC, position ASC, available_at ASC, created_at ASC, seq ASC`.

    Only persisted fields take part, and `seq` is unique, so the order is never ambiguous.
    """
    return (-job.priority, job.position, job.available_at, job.created_at, job.seq)


def next_position(highest: int | None, gap: int = GAP) -> int:
    """Behind everybody: behind `highest` of the waiting jobs of that priority, and behind 0.

    0 means that a job has no position. It is a barrier: who was put before those without one has
    a negative position, who was put behind them a positive one.
    """
    return max(0, highest or 0) + gap


def first_position(lowest: int | None, gap: int = GAP) -> int:
    """Before everybody: before `lowest` of the waiting jobs of that priority, and before 0."""
    return min(0, lowest or 0) - gap


def distribute_positions(number: int, low: int | None, high: int | None, step: int) -> list[int]:
    """So many rising positions between `low` and `high`, neither of them included.

    Evenly, if there is a bound on both sides; where one is None they stand `step` apart, counted
    from the other. Between two bounds there must be room for that many.
    """
    if high is None:
        return [(low or 0) + step * n for n in range(1, number + 1)]
    if low is None:
        return [high - step * n for n in range(number, 0, -1)]
    return [low + (high - low) * n // (number + 1) for n in range(1, number + 1)]


def renumber_positions(positions: Sequence[int], ordering: Ordering, gap: int = GAP) -> list[int]:
    """The positions of one priority, given in claim order, made even again; the order stays.

    In a `position` queue they are gap, 2 gap, 3 gap …; in a `scheduled` one only those that were
    put somewhere have a position, and stay on their side of 0.
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

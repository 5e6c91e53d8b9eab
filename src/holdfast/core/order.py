"""The order in which the jobs of one queue are taken."""

from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

GAP: Final = 100


class Ordering(StrEnum):
    """How a queue places a new job among those of its priority."""

    SCHEDULED = "scheduled"  # by due time: position 0, enqueueing takes no lock
    POSITION = "position"  # by explicit position: each new one after the last


class Placed(Protocol):
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


def sort_key(job: Placed) -> tuple[int, int, datetime, datetime, int]:
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

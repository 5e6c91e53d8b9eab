"""Contract: queue settings, pause and renumbering."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from outlast.core.ordering import GAP, Ordering
from outlast.core.queue import Pause


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How a named queue orders its jobs and how many run at once. Not set: `scheduled`, no limit.

    `pause` is how it stands, None when it is not paused; `set_queue` does not write it.
    """

    name: str
    ordering: Ordering = Ordering.SCHEDULED
    gap: int = GAP
    concurrency: int | None = None  # how many of its jobs run at a time, anywhere; None: no limit
    pause: Pause | None = None


class Queues(Protocol):
    """Named orders."""

    async def set_queue(self, queue: Queue) -> None:
        """Create the queue or change it; jobs that wait keep their positions.

        A pause stays as it is, and so do runs over a lowered limit.
        """
        ...

    async def queue(self, name: str) -> Queue:
        """The queue as set, or its defaults. A pause whose time has passed is none."""
        ...

    async def queues(self) -> list[Queue]:
        """Every queue that was ever set or paused, by name."""
        ...

    async def pause(self, name: str, *, reason: str | None, span: timedelta | None) -> None:
        """Let nothing of this queue be claimed until it is resumed, or for `span` from now.

        What runs goes on, and jobs may be added. Pausing again replaces reason and time. Atomic
        with its event `paused` of the queue, whose detail is the end of the pause, if it has one.
        """
        ...

    async def resume(self, name: str) -> bool:
        """End the pause, with an event `resumed` of the queue. False, and nothing, without one."""
        ...

    async def renumber(self, queue: str) -> int:
        """Make the positions of the waiting jobs even, and answer how many changed.

        All or nothing, and the order stays. In a `position` queue the jobs of each priority get
        gap, 2 gap, 3 gap …; in a `scheduled` one those that have a position, on their side of 0.
        If any changed, an event `renumbered` of the queue is recorded.
        """
        ...

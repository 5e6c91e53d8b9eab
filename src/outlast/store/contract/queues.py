"""Contract: queue settings, pause and renumbering."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from outlast.core.ordering import GAP, Ordering
from outlast.core.queue import Pause


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Order and concurrency limit of a named queue; a queue that was never set has the defaults.

    `pause` is the present pause, None if the queue is not paused; `set_queue` does not write it.
    """

    name: str
    ordering: Ordering = Ordering.SCHEDULED
    gap: int = GAP
    concurrency: int | None = None  # most open runs of the queue in all workers; None: no limit
    pause: Pause | None = None


class Queues(Protocol):
    """Settings of named queues."""

    async def set_queue(self, queue: Queue) -> None:
        """Create or change the queue; waiting jobs keep their positions.

        A pause stays as it is. Open runs above a lowered limit continue.
        """
        ...

    async def queue(self, name: str) -> Queue:
        """Return the queue as set, or its defaults; an expired pause is None."""
        ...

    async def queues(self) -> list[Queue]:
        """Return every queue that was ever set or paused, by name."""
        ...

    async def pause(self, name: str, *, reason: str | None, span: timedelta | None) -> None:
        """Refuse claims of this queue until it is resumed, or for `span` from now.

        When it returns, no claim that began before it returns a job any more. Open runs continue,
        and jobs may be added. Pausing again replaces reason and time. Atomic
        with the queue's event `paused`, whose detail is the end of the pause, if it has one.
        """
        ...

    async def resume(self, name: str) -> bool:
        """End the pause and record the queue's event `resumed`; False if it is not paused."""
        ...

    async def renumber(self, queue: str) -> int:
        """Space the positions of the waiting jobs evenly; return how many changed.

        Atomic, and the order stays. In a `position` queue the jobs of each priority get gap,
        2 gap, 3 gap …; in a `scheduled` queue only jobs with a position, on their side of 0. If
        any changed, an event `renumbered` of the queue is recorded.
        """
        ...

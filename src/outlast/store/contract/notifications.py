"""Contract: notifications after commits."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Topic(StrEnum):
    """What a listener wants to be woken for."""

    WORK = "work"  # a job may be there to be claimed
    ENDED = "ended"  # a job has ended, or a direct one was taken
    CANCELLED = "cancelled"  # a running job was asked to stop


class Notifications(Protocol):
    """Wake-ups. They make things quick; polling makes them true."""

    def subscribe(
        self,
        wake: Callable[["Notification"], None],
        *,
        topics: Collection["Topic"] = frozenset(Topic),
    ) -> Callable[[], None]:
        """Call `wake` soon after a commit that concerns one of the topics, whoever made it.

        On any thread, and it must be quick. A hint may be missed, come late, or be about nothing.
        The answer unsubscribes; leaving twice is fine.
        """
        ...


@dataclass(frozen=True, slots=True)
class Notification:
    """What a commit may have changed: queues with new work, jobs that ended, cancel requests.

    A queue without a name stands for one that is not known.
    """

    queues: frozenset[str] = frozenset()
    ended: bool = False
    cancelled: bool = False

    @property
    def topics(self) -> frozenset[Topic]:
        """What it is about."""
        about = ((Topic.WORK, self.queues), (Topic.ENDED, self.ended))
        return frozenset(
            topic for topic, is_so in (*about, (Topic.CANCELLED, self.cancelled)) if is_so
        )

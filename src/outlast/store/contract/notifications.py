"""Contract: notifications after commits."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Topic(StrEnum):
    """What a subscriber wants to be notified of."""

    WORK = "work"  # a job may be ready to be claimed
    ENDED = "ended"  # a job has ended, or a direct job was claimed
    CANCELLED = "cancelled"  # a running job has a cancel request
    SCHEDULES = "schedules"  # a schedule was saved


class Notifications(Protocol):
    """Notifications reduce latency; polling guarantees progress."""

    def subscribe(
        self,
        wake: Callable[["Notification"], None],
        *,
        topics: Collection["Topic"] = frozenset(Topic),
    ) -> Callable[[], None]:
        """Call `wake` soon after a commit of any process that concerns one of the topics.

        The call comes on any thread, so `wake` must return quickly. A notification may be lost,
        late or about nothing. Returns the function that unsubscribes, which is idempotent.
        """
        ...


@dataclass(frozen=True, slots=True)
class Notification:
    """What a commit may have changed: queues with work, ended jobs, cancel requests, schedules.

    The queue `""` stands for a queue that is not known.
    """

    queues: frozenset[str] = frozenset()
    ended: bool = False
    cancelled: bool = False
    schedules: bool = False

    @property
    def topics(self) -> frozenset[Topic]:
        """The topics that it concerns."""
        flags = (
            (Topic.WORK, self.queues),
            (Topic.ENDED, self.ended),
            (Topic.CANCELLED, self.cancelled),
            (Topic.SCHEDULES, self.schedules),
        )
        return frozenset(topic for topic, is_set in flags if is_set)

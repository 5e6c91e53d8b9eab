"""The contract around the jobs: who works, named locks, wake-ups."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerInfo, WorkerRecord


class Workers(Protocol):
    """Who runs jobs. For people and for recovery: no claim ever asks it."""

    async def register_worker(self, worker: WorkerInfo) -> None:
        """Put a worker on the list, from now; the same boot again starts anew.

        It counts as alive from its first beat.
        """
        ...

    async def heartbeat(self, holder: LeaseHolder, *, span: timedelta) -> bool:
        """Alive until `span` from now, by the clock nobody can set.

        False if it is not on the list, or was retired: then nothing was written.
        """
        ...

    async def deregister_worker(self, holder: LeaseHolder) -> None:
        """It has stopped, in order. Harmless if it is not on the list, or has stopped already."""
        ...

    async def workers(self) -> list[WorkerRecord]:
        """Everybody on the list, alive or not, the earliest start first."""
        ...


class HeldLock(Protocol):
    """A named lock that is held."""

    @property
    def is_lost(self) -> bool:
        """Whether somebody else has it by now: its connection broke, and another was quicker."""
        ...

    async def release(self) -> None:
        """Let go of it; twice is fine."""
        ...


class Locks(Protocol):
    """Names that one process has at a time: getting one proves that whoever had it is gone."""

    async def acquire_lock(self, name: str, *, shared: bool = False) -> HeldLock | None:
        """Take the lock of that name at once; None if somebody living holds it.

        `shared`: together with all who share it too; None only if somebody holds it alone.

        It is held until it is released, the store is closed or the process ends, however it ends;
        then it is free at once. Two holds of one name exclude each other within a process too,
        and no process that this one starts or forks keeps it. InvalidJob if it is no name.
        """
        ...

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        """Those that nobody holds, at this moment; whoever acts on it takes the lock first.

        Looking takes each of them for a moment: whoever wants one just then waits or tries again.
        """
        ...


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

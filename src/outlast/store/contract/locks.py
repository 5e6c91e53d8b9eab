"""Contract: named locks."""

from collections.abc import Collection
from datetime import timedelta
from typing import Protocol, runtime_checkable


class HeldLock(Protocol):
    """A named lock that is held."""

    @property
    def is_lost(self) -> bool:
        """Whether the lock was lost: its connection broke and another process acquired it."""
        ...

    async def release(self) -> None:
        """Release the lock; idempotent."""
        ...


class Locks(Protocol):
    """Locks that end with their process.

    With the capability KERNEL_LOCKS a lock ends only with its process or its release: acquiring it
    proves that its former holder is dead. Elsewhere it also ends when the holder's connection or
    its heartbeat fails: a free lock is then a hint, and the former holder may still be running.
    """

    async def acquire_lock(
        self, name: str, *, shared: bool = False, lasting: bool = False
    ) -> HeldLock | None:
        """Acquire the lock of that name without waiting; None if another holder has it.

        A `shared` lock admits other shared holders and excludes an exclusive one. A `lasting` lock
        may stay held after its release, until the other lasting locks of this store are released:
        a store may keep all of them on one connection.

        The lock is held until it is released, the store is closed or the process ends in any way;
        it is free at once after that. Two exclusive locks of one name exclude each other within a
        process too. Processes that this one starts or forks do not keep it. Raises
        InvalidArgument for an invalid name.
        """
        ...

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        """Return the names whose lock is free at this moment.

        The check acquires each lock for an instant, so another process may fail to acquire it just
        then. Acquire the lock before acting on the result.
        """
        ...


@runtime_checkable
class WatchedLocks(Protocol):
    """Locks whose holders on other machines are judged by watching their heartbeats.

    There `acquire_lock` and `free_locks` wait until it is certain whether such a holder is alive.
    """

    @property
    def watch_time(self) -> timedelta:
        """For how long a holder is watched before it counts as dead."""
        ...

    async def acquire_lock_at_once(self, name: str) -> HeldLock | None:
        """Acquire the lock exclusively; None also if only watching could tell that."""
        ...

"""Contract: named locks."""

from collections.abc import Collection
from typing import Protocol


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
        and no process that this one starts or forks keeps it. InvalidArgument if it is no name.
        """
        ...

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        """Those that nobody holds, at this moment; whoever acts on it takes the lock first.

        Looking takes each of them for a moment: whoever wants one just then waits or tries again.
        """
        ...

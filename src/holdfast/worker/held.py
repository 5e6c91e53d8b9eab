"""The leases a worker holds: from the claim until the end of the run is durable."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from holdfast.core.ids import JobId
from holdfast.core.run import Claim, Lease


class Held(Protocol):
    """Where they are kept, so that somebody can renew them. Called on the worker's loop."""

    @property
    def room(self) -> int:
        """How many more can be held."""
        ...

    @property
    def stepping(self) -> Callable[[JobId | None], None] | None:
        """Whom to tell, if anybody, whose code the event loop is about to run."""
        ...

    def take(self, claims: Sequence[Claim]) -> None: ...

    def start(self, claim: Claim, *, executor: str, limit: timedelta | None) -> None:
        """Its handler is about to be called, and may take that long."""
        ...

    def move(self, lease: Lease, executor: str) -> None:
        """Its code runs in that executor from here on; `none`, that its handler is done with."""
        ...

    def expire(self, lease: Lease) -> None:
        """Its time limit is over and it was asked to stop: what if it does not?"""
        ...

    def drop(self, lease: Lease) -> bool:
        """Renew it no more; False if it is not held, or under another token by now."""
        ...

    def has(self, lease: Lease) -> bool: ...

    def __len__(self) -> int: ...


class HeldHere:
    """Kept in this process, for a thread of it to renew."""

    room = 2**31
    stepping = None

    def __init__(self) -> None:
        self._by_job: dict[JobId, Lease] = {}

    def take(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._by_job[claim.job_id] = claim.lease

    def start(self, claim: Claim, *, executor: str, limit: timedelta | None) -> None:
        """Nobody here needs to know."""

    def move(self, lease: Lease, executor: str) -> None:
        """The same."""

    def expire(self, lease: Lease) -> None:
        """Nobody can end a thread from within: it loses its lease, and its write is refused."""
        self.drop(lease)

    def drop(self, lease: Lease) -> bool:
        if not self.has(lease):
            return False
        del self._by_job[lease.job_id]
        return True

    def has(self, lease: Lease) -> bool:
        return self._by_job.get(lease.job_id) == lease

    def all(self) -> list[Lease]:
        """For the renewing thread: copying a dict's values is one step of the interpreter."""
        return list(self._by_job.values())

    def clear(self) -> None:
        self._by_job.clear()

    def __len__(self) -> int:
        return len(self._by_job)

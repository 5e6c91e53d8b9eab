"""The leases a worker holds: from the claim until the end of the run is durable."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from outlast.core.decide import Change
from outlast.core.ids import JobId
from outlast.core.run import Claim, Lease


class LeaseTable(Protocol):
    """Where they are kept, so that somebody can renew them. Called on the worker's loop."""

    @property
    def room(self) -> int:
        """How many more can be held."""
        ...

    @property
    def on_step(self) -> Callable[[JobId | None], None] | None:
        """Whom to tell, if anybody, whose code the event loop is about to run."""
        ...

    def add(self, claims: Sequence[Claim]) -> list[Lease]:
        """Hold these; answers leases of the same jobs that were held until now, and are lost."""
        ...

    def start(self, claim: Claim, *, executor: str, limit: timedelta | None) -> object:
        """Its handler is about to be called, and may take that long."""
        ...

    def start_async(self, claim: Claim, *, limit: timedelta | None) -> None:
        """The same, and the event loop is in its code until `stepping(None)`, or it returned."""
        ...

    def change_executor(self, lease: Lease, executor: str) -> None:
        """Its code runs in that executor from here on."""
        ...

    def returned(self, claim: Claim) -> None:
        """Its handler is done with; its end is on the way to the store."""
        ...

    def expire(self, lease: Lease) -> None:
        """Its time limit is over and it was asked to stop: what if it does not?"""
        ...

    def remove(self, lease: Lease) -> bool:
        """Renew it no more; False if it is not held, or under another token by now."""
        ...

    def remove_ended(self, ended: Sequence[Change]) -> None:
        """The same for all whose end is durable, or was refused."""
        ...

    def has(self, lease: Lease) -> bool: ...

    def __len__(self) -> int: ...


class InMemoryLeaseTable:
    """Kept in this process, for a thread of it to renew."""

    room = 2**31
    on_step = None

    def __init__(self) -> None:
        self._tokens: dict[JobId, int] = {}

    def add(self, claims: Sequence[Claim]) -> list[Lease]:
        tokens, lost = self._tokens, []
        for claim in claims:
            if claim.job_id in tokens:
                lost.append(Lease(claim.job_id, tokens[claim.job_id]))
            tokens[claim.job_id] = claim.token
        return lost

    def start(self, claim: Claim, *, executor: str, limit: timedelta | None) -> None:
        """Nobody here needs to know."""

    def start_async(self, claim: Claim, *, limit: timedelta | None) -> None:
        """The same."""

    def change_executor(self, lease: Lease, executor: str) -> None:
        """The same."""

    def returned(self, claim: Claim) -> None:
        """The same."""

    def expire(self, lease: Lease) -> None:
        """Nobody can end a thread from within: it loses its lease, and its write is refused."""
        self.remove(lease)

    def remove(self, lease: Lease) -> bool:
        if not self.has(lease):
            return False
        del self._tokens[lease.job_id]
        return True

    def remove_ended(self, ended: Sequence[Change]) -> None:
        tokens = self._tokens
        for change in ended:
            if tokens.get(change.job_id) == change.token:
                del tokens[change.job_id]

    def has(self, lease: Lease) -> bool:
        return self._tokens.get(lease.job_id) == lease.token

    def all(self) -> list[Lease]:
        """For the renewing thread: copying a dict is one step of the interpreter."""
        return [Lease(job_id, token) for job_id, token in self._tokens.copy().items()]

    def clear(self) -> None:
        self._tokens.clear()

    def __len__(self) -> int:
        return len(self._tokens)

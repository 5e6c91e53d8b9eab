"""The lease table of a worker: leases from the claim until the end of the run is durable."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from outlast.core.decide import Change
from outlast.core.ids import JobId
from outlast.core.run import Claim, Lease


class LeaseTable(Protocol):
    """The leases a worker holds, readable by the renewer. Written on the worker's loop only."""

    @property
    def room(self) -> int:
        """How many more leases fit."""
        ...

    @property
    def on_step(self) -> Callable[[JobId | None], None] | None:
        """Callback with the job whose code the event loop is about to run, if wanted."""
        ...

    def add(self, claims: Sequence[Claim]) -> list[Lease]:
        """Add claims; return the lost leases of the same jobs that they replace."""
        ...

    def start(self, claim: Claim, *, executor: str, limit: timedelta | None) -> object:
        """Record that the handler is about to be called, and its `max_runtime`."""
        ...

    def start_async(self, claim: Claim, *, limit: timedelta | None) -> None:
        """Record the same, and that the loop runs its code until `on_step(None)` or `returned`."""
        ...

    def change_executor(self, lease: Lease, executor: str) -> None:
        """Record that the code of the run continues in another executor."""
        ...

    def returned(self, claim: Claim) -> None:
        """Record that the handler has ended and its end is on the way to the store."""
        ...

    def expire(self, lease: Lease) -> None:
        """Record that the run exceeded `max_runtime` and was asked to stop."""
        ...

    def lose(self, lease: Lease) -> None:
        """Record that the lease was lost and its run was asked to stop."""
        ...

    def remove(self, lease: Lease) -> bool:
        """Stop renewing a lease. Returns False if it is not held under that token."""
        ...

    def remove_ended(self, ended: Sequence[Change]) -> None:
        """Stop renewing the leases of runs whose end is durable or was refused."""
        ...

    def has(self, lease: Lease) -> bool:
        """Whether the lease is held under that token."""
        ...

    def __len__(self) -> int: ...


class InMemoryLeaseTable:
    """Leases in this process, renewed by a thread of it."""

    room = 2**31
    on_step = None

    def __init__(self) -> None:
        self._tokens: dict[JobId, int] = {}

    def add(self, claims: Sequence[Claim]) -> list[Lease]:
        """Add claims; return the lost leases of the same jobs that they replace."""
        tokens, lost = self._tokens, []
        for claim in claims:
            if claim.job_id in tokens:
                lost.append(Lease(claim.job_id, tokens[claim.job_id]))
            tokens[claim.job_id] = claim.token
        return lost

    def start(self, claim: Claim, *, executor: str, limit: timedelta | None) -> None:
        """Do nothing: no supervisor reads this table."""

    def start_async(self, claim: Claim, *, limit: timedelta | None) -> None:
        """Do nothing: no supervisor reads this table."""

    def change_executor(self, lease: Lease, executor: str) -> None:
        """Do nothing: no supervisor reads this table."""

    def returned(self, claim: Claim) -> None:
        """Do nothing: no supervisor reads this table."""

    def expire(self, lease: Lease) -> None:
        """Stop renewing: a thread cannot be killed, but the store refuses its late write."""
        self.remove(lease)

    def lose(self, lease: Lease) -> None:
        """Stop renewing it."""
        self.remove(lease)

    def remove(self, lease: Lease) -> bool:
        """Stop renewing a lease. Returns False if it is not held under that token."""
        if not self.has(lease):
            return False
        del self._tokens[lease.job_id]
        return True

    def remove_ended(self, ended: Sequence[Change]) -> None:
        """Stop renewing the leases of runs whose end is durable or was refused."""
        tokens = self._tokens
        for change in ended:
            if tokens.get(change.job_id) == change.token:
                del tokens[change.job_id]

    def has(self, lease: Lease) -> bool:
        """Whether the lease is held under that token."""
        return self._tokens.get(lease.job_id) == lease.token

    def all(self) -> list[Lease]:
        """Return all leases. Safe on the renewer's thread: `dict.copy` is atomic."""
        return [Lease(job_id, token) for job_id, token in self._tokens.copy().items()]

    def clear(self) -> None:
        """Remove every lease."""
        self._tokens.clear()

    def __len__(self) -> int:
        return len(self._tokens)

"""The contract of direct runs: a queue held for one job."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.reservation import NewReservation, Reservation, ReservationId


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """What became of one `reserve`.

    `created`: the reservation and its job were stored by this call. Otherwise nothing was, because
    of the active `reservation` of that queue, or because the job was stored already or its key or
    slot has a holder (`existing`), or because the store cannot keep it (`refused` says why).
    """

    created: bool
    reservation: Reservation | None = None
    existing: JobId | None = None
    refused: str | None = None


class Reservations(Protocol):
    """At most one active per queue, ever.

    While one is, `claim` takes nothing of its queue but its job, if that may be taken at all. Where
    the queue's `concurrency` is 1 it stays active until its job has ended; anywhere else the claim
    of the job releases it. Every write that ends the job ends it too: `released`, or `expired`
    when the run was lost or the caller gone. Renewing the lease of its running job renews it by
    its own span. It lapses by the clock nobody can set; lapsed, it is obeyed until somebody says so
    by ending its job (guard `silent`), or, once that was taken, by `free_reservations`.
    """

    async def reserve(self, new: NewReservation, job: NewJob) -> Reserved:
        """Hold the job's queue for it, and store it before all others of its priority.

        Atomic, both or nothing. If the queue is held already, its active reservation comes back:
        one's own, where the answer to an earlier call was lost. Otherwise the job is stored or
        not as `add` would.
        """
        ...

    async def extend_reservation(self, reservation_id: ReservationId, *, span: timedelta) -> bool:
        """Extend it to `span` from now, lapsed or not; False if it is not active any more."""
        ...

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        """The reservation as it stands."""
        ...

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        """The latest first. They go when their job is pruned."""
        ...

    async def expired_reservations(self, *, limit: int) -> list[Reservation]:
        """Active ones that nobody has renewed in time, the longest lapsed first."""
        ...

    async def release_stale_reservations(self, *, limit: int) -> list[Reservation]:
        """Let active ones expire that hold a queue for nothing; answers those, as they are now.

        `job_over`: its job has ended, or is gone; only a broken store has any. `handed_back`: it
        has lapsed, and its job was taken once and waits again, which it goes on to do.
        """
        ...

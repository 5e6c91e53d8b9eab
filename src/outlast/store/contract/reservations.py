"""Contract: reservations, a queue held for one direct job."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.reservation import NewReservation, Reservation, ReservationId


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Result of `reserve`.

    `created` is True if this call stored the reservation and its job. Otherwise nothing was
    stored, and one field says why: the active `reservation` of that queue, the `existing` job (the
    job itself, or the holder of its key or slot), or the reason why the job was `refused`.
    """

    created: bool
    reservation: Reservation | None = None
    existing: JobId | None = None
    refused: str | None = None


class Reservations(Protocol):
    """At most one active reservation per queue.

    While it is active, `claim` selects only its job from that queue. In a queue with
    `concurrency` 1 it stays active until its job has ended; in any other the claim of the job
    releases it. Every write that ends the job ends the reservation too: `released`, or `expired`
    if the run was lost or the caller is dead. Renewing the lease of its running job renews it by
    its own span.

    It expires by the monotonic clock. An expired reservation still holds its queue until
    maintenance ends its job (guard RESERVATION_EXPIRED) or, if the job was claimed before, calls
    `release_stale_reservations`.
    """

    async def reserve(self, new: NewReservation, job: NewJob) -> Reserved:
        """Reserve the job's queue and store the job before all others of its priority.

        Atomic: both or neither. If the queue is reserved already, its active reservation is
        returned, which may be the caller's own if an earlier reply was lost. Otherwise the job is
        stored or refused as by `add`.
        """
        ...

    async def extend_reservation(self, reservation_id: ReservationId, *, span: timedelta) -> bool:
        """Extend it to `span` from now, even if expired; False if it is not active any more."""
        ...

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        """Return the reservation, or None."""
        ...

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        """Return reservations, the latest first; pruning a job deletes its reservations."""
        ...

    async def expired_reservations(self, *, limit: int) -> list[Reservation]:
        """Return active reservations past their end, the longest expired first."""
        ...

    async def release_stale_reservations(self, *, limit: int) -> list[Reservation]:
        """Expire active reservations that hold a queue for nothing; return them as written.

        Reason `job_over`: the job has ended or is gone, which only a broken store contains.
        Reason `handed_back`: the reservation has expired and its job was claimed once and waits
        again; the job keeps waiting.
        """
        ...

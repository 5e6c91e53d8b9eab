"""Reservations: a direct run reserves its queue, so that no other job is claimed before it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NewType

from outlast.core.event import EventKind
from outlast.core.ids import JobId
from outlast.core.limits import MAX_KEY, is_storable, repr_short
from outlast.core.state import RunStatus
from outlast.errors import InvalidArgument

ReservationId = NewType("ReservationId", str)

JOB_OVER: Final = "job_over"
"""Reason when recovery ends a reservation whose job has ended."""

HANDED_BACK: Final = "handed_back"
"""Reason when a reservation expires whose job was claimed and released."""


class ReservationStatus(StrEnum):
    """Status of a reservation; every value but the first is final."""

    ACTIVE = "active"  # only its own job can be claimed from its queue
    RELEASED = "released"  # used, or released by its caller
    EXPIRED = "expired"  # its caller stopped renewing it, or died


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReservation:
    """A reservation to store: `caller` is the lock name of a process, `request` what it is for."""

    id: ReservationId
    caller: str
    request: str
    span: timedelta  # how long it lasts without a renewal


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A reservation as stored; `reason` says why it expired."""

    id: ReservationId
    queue: str
    job_id: JobId
    caller: str
    request: str
    status: ReservationStatus
    reason: str | None
    reserved_at: datetime
    expires_at: datetime
    ended_at: datetime | None

    @property
    def reserved_by(self) -> str:
        """The process that holds it, and what for."""
        return f"{self.caller} for {self.request}"

    @property
    def is_active(self) -> bool:
        """Whether it still reserves its queue."""
        return self.status is ReservationStatus.ACTIVE


def status_after(run: RunStatus | None, kind: EventKind | None) -> ReservationStatus:
    """Return how a reservation ends with its job, from the end of its run and the event kind."""
    is_lost = run is RunStatus.LOST or kind is EventKind.ABANDONED
    return ReservationStatus.EXPIRED if is_lost else ReservationStatus.RELEASED


def check_request(value: str) -> str:
    """Return `value` if it can describe a request; InvalidArgument otherwise."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY or not is_storable(value):
        raise InvalidArgument(
            f"request is {repr_short(value)}; use text of 1 to {MAX_KEY} characters without NUL"
        )
    return value

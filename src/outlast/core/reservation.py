"""Reservations: a direct run holds its queue, so that nothing else is taken before it."""

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
"""Why a repair ends a reservation: nothing is left that it could be for."""

HANDED_BACK: Final = "handed_back"
"""Why one lapses whose job was taken and waits again: the caller has its answer, the job stays."""


class ReservationStatus(StrEnum):
    """How a reservation stands; every value but the first is final."""

    ACTIVE = "active"  # of its queue only its own job can be taken
    RELEASED = "released"  # it was used, or given back
    EXPIRED = "expired"  # whoever held it fell silent, or died


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReservation:
    """A queue to be held for one job, by a process (its lock's name) and for a request of its."""

    id: ReservationId
    caller: str
    request: str
    span: timedelta  # how long it lasts unless it is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A reservation as the store has it; `reason` says why it expired."""

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
        return self.status is ReservationStatus.ACTIVE


def status_after(run: RunStatus | None, kind: EventKind | None) -> ReservationStatus:
    """How the reservation ends with its job, by the run that closed and the kind of that end."""
    is_lost = run is RunStatus.LOST or kind is EventKind.ABANDONED
    return ReservationStatus.EXPIRED if is_lost else ReservationStatus.RELEASED


def check_request(value: str) -> str:
    """`value`, if it can say what a reservation is for."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY or not is_storable(value):
        raise InvalidArgument(
            f"request is {repr_short(value)}; use text of 1 to {MAX_KEY} characters without NUL"
        )
    return value

"""Mapper from rows to reservations."""

from typing import Any

from outlast.clock import from_micros
from outlast.core.ids import JobId
from outlast.core.reservation import Reservation, ReservationId, ReservationStatus


def reservation(row: tuple[Any, ...]) -> Reservation:
    """Return the reservation of a row."""
    number, queue, job_id, caller, request, status, reason, reserved_at, expires_at, ended_at = row
    return Reservation(
        id=ReservationId(number),
        queue=queue,
        job_id=JobId(job_id),
        caller=caller,
        request=request,
        status=ReservationStatus(status),
        reason=reason,
        reserved_at=from_micros(reserved_at),
        expires_at=from_micros(expires_at),
        ended_at=None if ended_at is None else from_micros(ended_at),
    )

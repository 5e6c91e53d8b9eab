"""Reservation records: codec, load and save, and their end with the job."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from outlast.clock import MICROSECOND
from outlast.core.decide import Change
from outlast.core.ids import JobId
from outlast.core.reservation import Reservation, ReservationId, ReservationStatus, status_after
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.clocks import LeaseExpiry
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import DamagedValue, Key, Value
from outlast.store.keyvalue.repositories import queues
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRecord:
    """A reservation with its number and the expiry of its last extension."""

    reservation: Reservation
    seq: int
    expiry: LeaseExpiry
    span: timedelta


async def load(unit: UnitOfWork, seq: int) -> ReservationRecord | None:
    """Return the record of that number; None if there is none, or it is damaged."""
    value = await unit.get(key(seq))
    return None if value is None or isinstance(value, DamagedValue) else from_value(value)


async def find(unit: UnitOfWork, number: str) -> ReservationRecord | None:
    """Return the record of that id, or None."""
    there = await unit.get(pointer(number))
    return None if there is None else await load(unit, there["seq"])


def save(unit: UnitOfWork, record: ReservationRecord, *, is_new: bool = False) -> None:
    """Write the record, and its pointer if it is new."""
    unit.put(key(record.seq), to_value(record))
    if is_new:
        unit.put(pointer(record.reservation.id), {"seq": record.seq})


def extended(
    record: ReservationRecord, span: timedelta, context: StoreContext
) -> ReservationRecord:
    """Return the record extended by `span` from now."""
    held = replace(record.reservation, expires_at=context.now() + span)
    return replace(record, reservation=held, expiry=context.leases.end(span), span=span)


async def active_of(unit: UnitOfWork, job: JobRecord) -> ReservationRecord | None:
    """Return the active reservation of the job, or None."""
    if job.reservation is None:
        return None
    record = await load(unit, job.reservation)
    if (
        record is None
        or not record.reservation.is_active
        or record.reservation.job_id != job.job.id
    ):
        return None
    return record


async def end_with(unit: UnitOfWork, job: JobRecord, change: Change, now: datetime) -> None:
    """End the reservation of a job that the change ends."""
    record = await active_of(unit, job)
    if record is not None:
        status = status_after(change.move.run, change.move.kind)
        reason = change.reason if status is ReservationStatus.EXPIRED else None
        await close(unit, record, status, reason, now)


async def close(
    unit: UnitOfWork,
    record: ReservationRecord,
    status: ReservationStatus,
    reason: str | None,
    now: datetime,
) -> Reservation:
    """End a reservation and free its queue."""
    held = replace(record.reservation, status=status, reason=reason, ended_at=now)
    save(unit, replace(record, reservation=held))
    queue = await queues.load(unit, held.queue)
    if queue.reservation == record.seq:
        queues.save(unit, replace(queue, reservation=None, reserved_for=None))
    return held


def forget(unit: UnitOfWork, record: ReservationRecord) -> None:
    """Delete the record and its pointer."""
    unit.delete(key(record.seq))
    unit.delete(pointer(record.reservation.id))


def key(seq: int) -> Key:
    """Return the key of a reservation's record."""
    return Key(key_layout.RESERVATION, key_layout.number(seq))


def pointer(number: str) -> Key:
    """Return the key of the pointer from a reservation's id to its record."""
    return Key(f"reservation-id#{key_layout.key_safe(number)}", key_layout.ONLY)


def to_value(record: ReservationRecord) -> Value:
    """Return the stored value of a reservation."""
    held = record.reservation
    value: dict[str, Any] = {
        "id": held.id,
        "seq": record.seq,
        "queue": held.queue,
        "job_id": held.job_id,
        "caller": held.caller,
        "request": held.request,
        "status": held.status.value,
        "reason": held.reason,
        "reserved_at": key_layout.time_key(held.reserved_at),
        "expires_at": key_layout.time_key(held.expires_at),
        "ended_at": held.ended_at and key_layout.time_key(held.ended_at),
        "silence_at": record.expiry.at,
        "silence_boot": record.expiry.boot,
        "span": record.span // MICROSECOND,
    }
    return {name: each for name, each in value.items() if each is not None}


def from_value(value: Value) -> ReservationRecord:
    """Return the reservation record of a stored value."""
    ended_at = value.get("ended_at")
    held = Reservation(
        id=ReservationId(value["id"]),
        queue=value["queue"],
        job_id=JobId(value["job_id"]),
        caller=value["caller"],
        request=value["request"],
        status=ReservationStatus(value["status"]),
        reason=value.get("reason"),
        reserved_at=key_layout.from_time_key(value["reserved_at"]),
        expires_at=key_layout.from_time_key(value["expires_at"]),
        ended_at=None if ended_at is None else key_layout.from_time_key(ended_at),
    )
    return ReservationRecord(
        reservation=held,
        seq=value["seq"],
        expiry=LeaseExpiry(value["silence_at"], value["silence_boot"]),
        span=value["span"] * MICROSECOND,
    )

"""Reservations of the model store."""

from dataclasses import replace
from datetime import datetime, timedelta

from outlast.clock import MICROSECOND, Clock
from outlast.core.decide import Change
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.ordering import first_position
from outlast.core.reservation import (
    HANDED_BACK,
    JOB_OVER,
    NewReservation,
    Reservation,
    ReservationId,
    ReservationStatus,
    status_after,
)
from outlast.core.state import WAITING
from outlast.store.contract.notifications import Notification
from outlast.store.contract.reservations import Reserved
from outlast.testing.model.add import add_job
from outlast.testing.model.base import ModelOperations
from outlast.testing.model.tables import LeaseEnd, Tables


class ModelReservationOperations(ModelOperations):
    """Reservations of the model store."""

    async def reserve(self, new: NewReservation, job: NewJob) -> Reserved:
        """Reserve the job's queue and add the job before all others of its priority."""
        reserved = reserve(self._working, new, job, self._clock)
        self._notify(Notification(queues=frozenset({job.queue})))
        return reserved

    async def extend_reservation(self, reservation_id: ReservationId, *, span: timedelta) -> bool:
        """Extend an active reservation; return False if it has ended."""
        return extend(self._working, reservation_id, span, self._clock)

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        """Return a reservation, or None."""
        return self._tables.reservations.get(reservation_id)

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        """Return reservations, the latest first."""
        latest = reversed(self._tables.reservations.values())
        return [held for held in latest if held.is_active or not active_only][:limit]

    async def expired_reservations(self, *, limit: int) -> list[Reservation]:
        """Return active reservations past their end, the longest expired first."""
        ends = self._tables.expiries
        over = expired(self._tables, self._clock)
        this_boot = self._clock.boot_id()
        over.sort(key=lambda held: (ends[held.id][0].boot == this_boot, ends[held.id][0].at))
        return over[:limit]

    async def release_stale_reservations(self, *, limit: int) -> list[Reservation]:
        """Expire reservations whose job ended or came back to wait."""
        return release_stale(self._working, self._clock, limit)


def reserve(tables: Tables, new: NewReservation, job: NewJob, clock: Clock) -> Reserved:
    """Reserve the job's queue and add the job first."""
    held = tables.reservation_of(job.queue)
    if held is not None:
        return Reserved(created=False, reservation=held)
    added = add_job(tables, job, clock.now())
    if added.refused is not None:
        return Reserved(created=False, refused=added.refused)
    if not added.created:
        return Reserved(created=False, existing=added.id)
    _put_first(tables, job.id)
    return Reserved(created=True, reservation=_hold(tables, new, job, clock))


def extend(tables: Tables, number: ReservationId, span: timedelta, clock: Clock) -> bool:
    """Extend an active reservation; return False if it has ended."""
    held = tables.reservations.get(number)
    if held is None or not held.is_active:
        return False
    _extend(tables, held, span, clock)
    return True


def renew(tables: Tables, job_id: JobId, clock: Clock) -> None:
    """Extend the reservation of a job whose lease was renewed, by its own span."""
    for held in _active_of(tables, job_id):
        _extend(tables, held, tables.expiries[held.id][1], clock)


def end(tables: Tables, change: Change, now: datetime) -> None:
    """End the reservation of a job that the change ends."""
    status = status_after(change.move.run, change.move.kind)
    reason = change.reason if status is ReservationStatus.EXPIRED else None
    for held in _active_of(tables, change.job_id):
        _close(tables, held, status, reason, now)


def use(tables: Tables, queue: str, now: datetime) -> None:
    """Release the reservation of a queue whose job was claimed."""
    held = tables.reservation_of(queue)
    assert held is not None
    _close(tables, held, ReservationStatus.RELEASED, None, now)


def is_expired(tables: Tables, job_id: JobId, clock: Clock) -> bool:
    """Return True if the reservation of that job has expired."""
    held = _active_of(tables, job_id)
    return any(tables.expiries[each.id][0].is_past(clock) for each in held)


def expired(tables: Tables, clock: Clock) -> list[Reservation]:
    """Return active reservations that have expired."""
    active = [held for held in tables.reservations.values() if held.is_active]
    return [held for held in active if tables.expiries[held.id][0].is_past(clock)]


def release_stale(tables: Tables, clock: Clock, limit: int) -> list[Reservation]:
    """Expire the reservations whose job ended or came back to wait."""
    back = [held for held in expired(tables, clock) if _is_back(tables, held.job_id)]
    active = [held for held in tables.reservations.values() if held.is_active]
    freed = [held for held in active if held in back or _is_over(tables, held.job_id)][:limit]
    why = [HANDED_BACK if held in back else JOB_OVER for held in freed]
    return [
        _close(tables, held, ReservationStatus.EXPIRED, reason, clock.now())
        for held, reason in zip(freed, why, strict=True)
    ]


def forget(tables: Tables, job_id: JobId) -> None:
    """Delete the ended reservations of a pruned job."""
    for held in list(tables.reservations.values()):
        if held.job_id == job_id and not held.is_active:
            del tables.reservations[held.id]
            del tables.expiries[held.id]


def _put_first(tables: Tables, job_id: JobId) -> None:
    job = tables.jobs[job_id]
    waiting = (other for other in tables.jobs.values() if other.state in WAITING)
    same = (job.queue, job.priority)
    positions = [other.position for other in waiting if (other.queue, other.priority) == same]
    position = first_position(min(positions), tables.queue(job.queue).gap)
    tables.jobs[job_id] = replace(job, position=position)


def _hold(tables: Tables, new: NewReservation, job: NewJob, clock: Clock) -> Reservation:
    held = Reservation(
        id=new.id,
        queue=job.queue,
        job_id=job.id,
        caller=new.caller,
        request=new.request,
        status=ReservationStatus.ACTIVE,
        reason=None,
        reserved_at=clock.now(),
        expires_at=clock.now(),
        ended_at=None,
    )
    return _extend(tables, held, new.span, clock)


def _extend(tables: Tables, held: Reservation, span: timedelta, clock: Clock) -> Reservation:
    until = LeaseEnd(clock.monotonic() + span // MICROSECOND, clock.boot_id())
    tables.expiries[held.id] = until, span
    tables.reservations[held.id] = replace(held, expires_at=clock.now() + span)
    return tables.reservations[held.id]


def _close(
    tables: Tables,
    held: Reservation,
    status: ReservationStatus,
    reason: str | None,
    now: datetime,
) -> Reservation:
    tables.reservations[held.id] = replace(held, status=status, reason=reason, ended_at=now)
    return tables.reservations[held.id]


def _active_of(tables: Tables, job_id: JobId) -> list[Reservation]:
    held = tables.reservations.values()
    return [each for each in held if each.job_id == job_id and each.is_active]


def _is_back(tables: Tables, job_id: JobId) -> bool:
    """Return True if the job was claimed, and waits again."""
    job = tables.jobs.get(job_id)
    return job is not None and job.token > 0 and job.state in WAITING


def _is_over(tables: Tables, job_id: JobId) -> bool:
    job = tables.jobs.get(job_id)
    return job is None or job.is_final

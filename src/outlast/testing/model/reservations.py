"""How the model store holds a queue for one job."""

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
from outlast.store.contract.reservations import Reserved
from outlast.testing.model.add import add_job
from outlast.testing.model.tables import LeaseEnd, Tables


def reserve(tables: Tables, new: NewReservation, job: NewJob, clock: Clock) -> Reserved:
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


def keep(tables: Tables, number: ReservationId, span: timedelta, clock: Clock) -> bool:
    held = tables.reservations.get(number)
    if held is None or not held.is_active:
        return False
    _extend(tables, held, span, clock)
    return True


def renew(tables: Tables, job_id: JobId, clock: Clock) -> None:
    """The lease of its job was renewed: it lasts by its own span from now."""
    for held in _active_of(tables, job_id):
        _extend(tables, held, tables.silences[held.id][1], clock)


def end(tables: Tables, change: Change, now: datetime) -> None:
    """Its job has ended by that change."""
    status = status_after(change.move.run, change.move.kind)
    reason = change.reason if status is ReservationStatus.EXPIRED else None
    for held in _active_of(tables, change.job_id):
        _close(tables, held, status, reason, now)


def use(tables: Tables, queue: str, now: datetime) -> None:
    """Its job was claimed, where that is all that it was for."""
    held = tables.reservation_of(queue)
    assert held is not None
    _close(tables, held, ReservationStatus.RELEASED, None, now)


def is_silent(tables: Tables, job_id: JobId, clock: Clock) -> bool:
    """Whether nobody has renewed the reservation of that job in time."""
    held = _active_of(tables, job_id)
    return any(tables.silences[each.id][0].is_past(clock) for each in held)


def lapsed(tables: Tables, clock: Clock) -> list[Reservation]:
    active = [held for held in tables.reservations.values() if held.is_active]
    return [held for held in active if tables.silences[held.id][0].is_past(clock)]


def free(tables: Tables, clock: Clock, limit: int) -> list[Reservation]:
    """Those that hold a queue for nothing, as they are then."""
    back = [held for held in lapsed(tables, clock) if _is_back(tables, held.job_id)]
    active = [held for held in tables.reservations.values() if held.is_active]
    freed = [held for held in active if held in back or _is_over(tables, held.job_id)][:limit]
    why = [HANDED_BACK if held in back else JOB_OVER for held in freed]
    return [
        _close(tables, held, ReservationStatus.EXPIRED, reason, clock.now())
        for held, reason in zip(freed, why, strict=True)
    ]


def forget(tables: Tables, job_id: JobId) -> None:
    """Its job was pruned."""
    for held in list(tables.reservations.values()):
        if held.job_id == job_id and not held.is_active:
            del tables.reservations[held.id]
            del tables.silences[held.id]


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
    tables.silences[held.id] = until, span
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
    """Whether it was taken, and waits again."""
    job = tables.jobs.get(job_id)
    return job is not None and job.token > 0 and job.state in WAITING


def _is_over(tables: Tables, job_id: JobId) -> bool:
    job = tables.jobs.get(job_id)
    return job is None or job.is_final

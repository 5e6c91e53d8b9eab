"""Holding a queue for one job: taking it, keeping it, and letting go of what nobody needs."""

from collections.abc import Sequence
from datetime import timedelta

from outlast.core.duration import MICROSECOND
from outlast.core.job import NewJob
from outlast.core.ordering import GAP
from outlast.core.reservation import (
    HANDED_BACK,
    JOB_OVER,
    NewReservation,
    Reservation,
    ReservationId,
)
from outlast.store.contract.reservations import Reserved
from outlast.store.rows.jobs import require_storable
from outlast.store.rows.reservations import reservation
from outlast.store.sqlite.operations.add import add
from outlast.store.sqlite.verbs.footing import require_open_store
from outlast.store.sqlite.writer import WriteTransaction


@require_open_store
def reserve(
    work: WriteTransaction, asked: Sequence[tuple[NewReservation, NewJob]]
) -> list[Reserved]:
    return [_reserve(work, new, job) for new, job in asked]


@require_open_store
def keep(work: WriteTransaction, asked: Sequence[tuple[ReservationId, timedelta]]) -> list[bool]:
    return [_keep(work, number, span) for number, span in asked]


@require_open_store
def free_reservations(work: WriteTransaction, limits: Sequence[int]) -> list[list[Reservation]]:
    return [_free(work, limit) for limit in limits]


def _reserve(work: WriteTransaction, new: NewReservation, job: NewJob) -> Reserved:
    active = work.run("reservations.active", queue=job.queue).fetchone()
    if active is not None:
        return Reserved(created=False, reservation=reservation(active))
    [added] = add(work, [job])
    if added.refused is not None:
        return Reserved(created=False, refused=added.refused)
    if not added.created:
        return Reserved(created=False, existing=added.id)
    return Reserved(created=True, reservation=_hold(work, new, job))


def _hold(work: WriteTransaction, new: NewReservation, job: NewJob) -> Reservation:
    require_storable([new.request])
    where = {"queue": job.queue, "job_id": job.id}
    work.run("reservations.place", priority=job.priority, gap=GAP, **where)
    span, now, mono = new.span // MICROSECOND, work.now, work.mono
    who = {"id": new.id, "caller": new.caller, "request": new.request}
    work.run("reservations.add", span=span, now=now, mono=mono, **who, **where)
    return reservation(work.run("reservations.get", id=new.id).fetchone())


def _keep(work: WriteTransaction, number: ReservationId, span: timedelta) -> bool:
    moments = {"now": work.now, "mono": work.mono}
    kept = work.run("reservations.keep", id=number, span=span // MICROSECOND, **moments)
    return kept.rowcount > 0


def _free(work: WriteTransaction, limit: int) -> list[Reservation]:
    values = {"over": JOB_OVER, "back": HANDED_BACK, "now": work.now, "mono": work.mono}
    freed = work.run("reservations.free", limit=limit, **values).fetchall()
    reservations = [reservation(row) for row in freed]
    work.queues.update(each.queue for each in reservations)
    return reservations

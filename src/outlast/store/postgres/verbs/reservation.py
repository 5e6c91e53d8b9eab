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
from outlast.store.postgres.unit_of_work import UnitOfWork
from outlast.store.postgres.verbs.add import add
from outlast.store.postgres.verbs.queue import lock_queues
from outlast.store.rows.jobs import require_storable
from outlast.store.rows.reservations import reservation


async def reserve(work: UnitOfWork, new: NewReservation, job: NewJob) -> Reserved:
    """Both or nothing; whoever claims of this queue comes before all of it, or after."""
    await lock_queues(work, [job.queue])
    active = await work.rows("reservations.active", queue=job.queue)
    if active:
        return Reserved(created=False, reservation=reservation(tuple(active[0])))
    [added] = await add(work, [job])
    if added.refused is not None:
        return Reserved(created=False, refused=added.refused)
    if not added.created:
        return Reserved(created=False, existing=added.id)
    return Reserved(created=True, reservation=await _hold(work, new, job))


async def keep(work: UnitOfWork, reservation_id: ReservationId, span: timedelta) -> bool:
    values = {"span": span // MICROSECOND, "now": work.now, "mono": work.mono}
    return await work.run("reservations.extend", id=reservation_id, **values) > 0


async def use_reservation(work: UnitOfWork, queue: str) -> None:
    """The claim of its job releases it, under the queue's lock; others may be taken then."""
    if await work.run("reservations.release_claimed", queue=queue, now=work.now):
        work.queues.add(queue)


async def end_reservations(work: UnitOfWork, ended: Sequence[tuple[str, str, str | None]]) -> None:
    """With a direct job ends its hold on the queue: (job, `released` or `expired`, why)."""
    if not ended:
        return
    jobs, statuses, reasons = (list(each) for each in zip(*ended, strict=True))
    values = {"jobs": jobs, "statuses": statuses, "reasons": reasons}
    freed = await work.rows("reservations.end", now=work.now, **values)
    work.queues.update(queue for (queue,) in freed)


async def free_reservations(work: UnitOfWork, queues: Sequence[str]) -> list[Reservation]:
    """Those of these queues that hold them for nothing, looked at again under their locks."""
    await lock_queues(work, queues)
    values = {"over": JOB_OVER, "back": HANDED_BACK, "now": work.now, "mono": work.mono}
    freed = await work.rows("reservations.release_stale", queues=list(queues), **values)
    reservations = [reservation(tuple(row)) for row in freed]
    work.queues.update(each.queue for each in reservations)
    return reservations


async def _hold(work: UnitOfWork, new: NewReservation, job: NewJob) -> Reservation:
    require_storable([new.request])
    where = {"queue": job.queue, "job": job.id}
    await work.run("reservations.move_to_front", priority=job.priority, gap=GAP, **where)
    moments = {"span": new.span // MICROSECOND, "now": work.now, "mono": work.mono}
    who = {"id": new.id, "caller": new.caller, "request": new.request}
    [held] = await work.rows("reservations.add", **moments, **who, **where)
    return reservation(tuple(held))

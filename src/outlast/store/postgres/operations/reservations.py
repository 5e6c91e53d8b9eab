"""Reservations: a direct run reserves its queue until its job is claimed or ends."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

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
from outlast.store.postgres.operations.add import add_jobs
from outlast.store.postgres.operations.base import PostgresOperations, require_open_store
from outlast.store.postgres.operations.queues import lock_queues
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork
from outlast.store.postgres.uuids import is_uuid
from outlast.store.rows import reservations as reservation_rows
from outlast.store.rows.jobs import require_storable


class PostgresReservationOperations(PostgresOperations):
    """Create, extend, list and release reservations."""

    async def reserve(self, new: NewReservation, job: NewJob) -> Reserved:
        """Add the job and reserve its queue, both or neither."""
        return await self._pool.transact(require_open_store(lambda work: _reserve(work, new, job)))

    async def extend_reservation(self, reservation_id: ReservationId, *, span: timedelta) -> bool:
        """Extend an active reservation to `span` from now; return False if it is not active."""
        if not is_uuid(reservation_id):
            return False
        return await self._pool.transact(
            require_open_store(lambda work: _extend(work, reservation_id, span))
        )

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        """Return a reservation, or None if there is none with that id."""
        if not is_uuid(reservation_id):
            return None
        found = await self._reservations("reservations.get", id=reservation_id)
        return found[0] if found else None

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        """Return the latest reservations, newest first."""
        if active_only:
            return await self._reservations("reservations.all_active", limit=limit)
        return await self._reservations("reservations.latest", limit=limit)

    async def expired_reservations(self, *, limit: int) -> list[Reservation]:
        """Return active reservations that were not extended in time."""
        return await self._reservations("reservations.expired", mono=self._mono, limit=limit)

    async def release_stale_reservations(self, *, limit: int) -> list[Reservation]:
        """Expire active reservations whose job ended, or was released and not extended."""
        # A read first: mostly there is none, and no queue is locked.
        values = {"mono": self._mono, "limit": limit}
        queues = [name for (name,) in await self._pool.rows("reservations.stale_queues", **values)]
        if not queues:
            return []
        return await self._pool.transact(
            require_open_store(lambda work: _release_stale(work, queues))
        )

    async def _reservations(self, name: str, **values: Any) -> list[Reservation]:
        found = await self._pool.rows(name, **values)
        return [reservation_rows.reservation(tuple(row)) for row in found]


async def release_claimed_reservation(work: PostgresUnitOfWork, queue: str) -> None:
    """Release the reservation of a queue whose job was just claimed; the queue is locked."""
    if await work.run("reservations.release_claimed", queue=queue, now=work.now):
        work.queues.add(queue)


async def end_reservations(
    work: PostgresUnitOfWork, ended: Sequence[tuple[str, str, str | None]]
) -> None:
    """End the reservations of jobs that ended: job, `released` or `expired`, reason."""
    if not ended:
        return
    jobs, statuses, reasons = (list(column) for column in zip(*ended, strict=True))
    values = {"jobs": jobs, "statuses": statuses, "reasons": reasons}
    freed = await work.rows("reservations.end", now=work.now, **values)
    work.queues.update(queue for (queue,) in freed)


async def _reserve(work: PostgresUnitOfWork, new: NewReservation, job: NewJob) -> Reserved:
    await lock_queues(work, [job.queue])
    active = await work.rows("reservations.active", queue=job.queue)
    if active:
        existing = reservation_rows.reservation(tuple(active[0]))
        return Reserved(created=False, reservation=existing)
    [added] = await add_jobs(work, [job])
    if added.refused is not None:
        return Reserved(created=False, refused=added.refused)
    if not added.created:
        return Reserved(created=False, existing=added.id)
    return Reserved(created=True, reservation=await _add_reservation(work, new, job))


async def _add_reservation(
    work: PostgresUnitOfWork, new: NewReservation, job: NewJob
) -> Reservation:
    require_storable([new.request])
    target = {"queue": job.queue, "job": job.id}
    await work.run("reservations.move_to_front", priority=job.priority, gap=GAP, **target)
    moments = {"span": new.span // MICROSECOND, "now": work.now, "mono": work.mono}
    caller = {"id": new.id, "caller": new.caller, "request": new.request}
    [row] = await work.rows("reservations.add", **moments, **caller, **target)
    return reservation_rows.reservation(tuple(row))


async def _extend(work: PostgresUnitOfWork, reservation_id: ReservationId, span: timedelta) -> bool:
    values = {"span": span // MICROSECOND, "now": work.now, "mono": work.mono}
    return await work.run("reservations.extend", id=reservation_id, **values) > 0


async def _release_stale(work: PostgresUnitOfWork, queues: Sequence[str]) -> list[Reservation]:
    """Release those that are still stale under the locks of their queues."""
    await lock_queues(work, queues)
    values = {"over": JOB_OVER, "back": HANDED_BACK, "now": work.now, "mono": work.mono}
    freed = await work.rows("reservations.release_stale", queues=list(queues), **values)
    reservations = [reservation_rows.reservation(tuple(row)) for row in freed]
    work.queues.update(each.queue for each in reservations)
    return reservations

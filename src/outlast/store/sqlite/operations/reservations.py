"""Reservations: a queue held for one direct job."""

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
from outlast.store.rows import reservations as reservation_rows
from outlast.store.rows.jobs import require_storable
from outlast.store.sqlite.operations.add import add
from outlast.store.sqlite.operations.base import SqliteOperations, require_open_store
from outlast.store.sqlite.writer import WriteTransaction


class SqliteReservationOperations(SqliteOperations):
    """Reserve queues for direct jobs."""

    async def reserve(self, new: NewReservation, job: NewJob) -> Reserved:
        """Reserve the job's queue and store the job, both or neither."""
        reserved: Reserved = (await self._writer.submit(reserve, [(new, job)]))[0]
        return reserved

    async def extend_reservation(self, reservation_id: ReservationId, *, span: timedelta) -> bool:
        """Extend the reservation to `span` from now; False if it is not active."""
        items = [(reservation_id, span)]
        extended: bool = (await self._writer.submit(extend_reservation, items))[0]
        return extended

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        """Return the reservation, or None."""
        found = await self._reservations("reservations.get", id=reservation_id)
        return found[0] if found else None

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        """Return reservations, the latest first."""
        if active_only:
            return await self._reservations("reservations.all_active", limit=limit)
        return await self._reservations("reservations.latest", limit=limit)

    async def expired_reservations(self, *, limit: int) -> list[Reservation]:
        """Return active reservations past their end, the longest expired first."""
        mono = self._clock.monotonic()
        return await self._reservations("reservations.expired", mono=mono, limit=limit)

    async def release_stale_reservations(self, *, limit: int) -> list[Reservation]:
        """Expire active reservations whose job has ended or was released; return them."""
        released: list[Reservation] = (
            await self._writer.submit(release_stale_reservations, [limit])
        )[0]
        return released

    async def _reservations(self, name: str, **values: Any) -> list[Reservation]:
        found = await self._reader.rows(name, **values)
        return [reservation_rows.reservation(row) for row in found]


@require_open_store
def reserve(
    tx: WriteTransaction, requests: Sequence[tuple[NewReservation, NewJob]]
) -> list[Reserved]:
    """Reserve in turn: the first request for a queue wins."""
    return [_reserve_one(tx, new, job) for new, job in requests]


@require_open_store
def extend_reservation(
    tx: WriteTransaction, items: Sequence[tuple[ReservationId, timedelta]]
) -> list[bool]:
    """Extend each active reservation."""
    return [_extend_one(tx, reservation_id, span) for reservation_id, span in items]


@require_open_store
def release_stale_reservations(
    tx: WriteTransaction, limits: Sequence[int]
) -> list[list[Reservation]]:
    """Expire reservations that hold a queue for nothing."""
    return [_release_stale(tx, limit) for limit in limits]


def _reserve_one(tx: WriteTransaction, new: NewReservation, job: NewJob) -> Reserved:
    active = tx.run("reservations.active", queue=job.queue).fetchone()
    if active is not None:
        return Reserved(created=False, reservation=reservation_rows.reservation(active))
    [added] = add(tx, [job])
    if added.refused is not None:
        return Reserved(created=False, refused=added.refused)
    if not added.created:
        return Reserved(created=False, existing=added.id)
    return Reserved(created=True, reservation=_insert_reservation(tx, new, job))


def _insert_reservation(tx: WriteTransaction, new: NewReservation, job: NewJob) -> Reservation:
    require_storable([new.request])
    target = {"queue": job.queue, "job_id": job.id}
    tx.run("reservations.set_position", priority=job.priority, gap=GAP, **target)
    span, now, mono = new.span // MICROSECOND, tx.now, tx.mono
    owner = {"id": new.id, "caller": new.caller, "request": new.request}
    tx.run("reservations.add", span=span, now=now, mono=mono, **owner, **target)
    return reservation_rows.reservation(tx.run("reservations.get", id=new.id).fetchone())


def _extend_one(tx: WriteTransaction, reservation_id: ReservationId, span: timedelta) -> bool:
    moments = {"now": tx.now, "mono": tx.mono}
    extended = tx.run("reservations.extend", id=reservation_id, span=span // MICROSECOND, **moments)
    return extended.rowcount > 0


def _release_stale(tx: WriteTransaction, limit: int) -> list[Reservation]:
    values = {"over": JOB_OVER, "back": HANDED_BACK, "now": tx.now, "mono": tx.mono}
    released = tx.run("reservations.release_stale", limit=limit, **values).fetchall()
    reservations = [reservation_rows.reservation(row) for row in released]
    tx.notify_queues.update(each.queue for each in reservations)
    return reservations

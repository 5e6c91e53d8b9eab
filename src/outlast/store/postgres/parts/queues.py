"""Queues, and reservations of them."""

from datetime import timedelta
from typing import Any

from outlast.clock import from_micros
from outlast.core.job import NewJob
from outlast.core.reservation import NewReservation, Reservation, ReservationId
from outlast.store.contract.queues import Queue
from outlast.store.contract.reservations import Reserved
from outlast.store.postgres.operations import positions
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.unit_of_work import Row
from outlast.store.postgres.uuids import is_uuid
from outlast.store.postgres.verbs import queue as verbs
from outlast.store.postgres.verbs import reservation as direct
from outlast.store.postgres.verbs.footing import require_open_store
from outlast.store.rows import queues as queue_rows
from outlast.store.rows import reservations as reservation_rows


class PostgresQueues(PostgresOperations):
    """Queues, and reservations of them."""

    async def set_queue(self, queue: Queue) -> None:
        await self._lines.transact(require_open_store(lambda work: verbs.set_queue(work, queue)))

    async def queue(self, name: str) -> Queue:
        found = await self._lines.rows("queues.get", name=name, now=self._now)
        return _queue(found[0]) if found else Queue(name=name)

    async def queues(self) -> list[Queue]:
        return [_queue(row) for row in await self._lines.rows("queues.all", now=self._now)]

    async def pause(self, name: str, *, reason: str | None, span: timedelta | None) -> None:
        await self._lines.transact(
            require_open_store(lambda work: verbs.pause(work, name, reason, span))
        )

    async def resume(self, name: str) -> bool:
        return await self._lines.transact(require_open_store(lambda work: verbs.resume(work, name)))

    async def normalise(self, queue: str) -> int:
        return await self._lines.transact(
            require_open_store(lambda work: positions.normalise(work, queue))
        )

    async def reserve(self, new: NewReservation, job: NewJob) -> Reserved:
        return await self._lines.transact(
            require_open_store(lambda work: direct.reserve(work, new, job))
        )

    async def extend_reservation(self, reservation_id: ReservationId, *, span: timedelta) -> bool:
        if not is_uuid(reservation_id):
            return False
        return await self._lines.transact(
            require_open_store(lambda work: direct.keep(work, reservation_id, span))
        )

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        if not is_uuid(reservation_id):
            return None
        found = await self._reservations("reservations.get", id=reservation_id)
        return found[0] if found else None

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        if active_only:
            return await self._reservations("reservations.all_active", limit=limit)
        return await self._reservations("reservations.latest", limit=limit)

    async def expired_reservations(self, *, limit: int) -> list[Reservation]:
        return await self._reservations("reservations.expired", mono=self._mono, limit=limit)

    async def release_stale_reservations(self, *, limit: int) -> list[Reservation]:
        # Looked for by a reader first: mostly there is none, and no queue need be locked.
        asked = {"mono": self._mono, "limit": limit}
        queues = [name for (name,) in await self._lines.rows("reservations.stale_queues", **asked)]
        if not queues:
            return []
        return await self._lines.transact(
            require_open_store(lambda work: direct.free_reservations(work, queues))
        )

    async def _reservations(self, name: str, **values: Any) -> list[Reservation]:
        found = await self._lines.rows(name, **values)
        return [reservation_rows.reservation(tuple(row)) for row in found]


def _queue(row: Row) -> Queue:
    """As it stands at the moment of the answer, its last column."""
    *kept, now = row
    return queue_rows.queue(tuple(kept), from_micros(now))

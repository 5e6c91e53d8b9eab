"""Queues, and reservations of them."""

from datetime import timedelta
from typing import Any

from outlast.core.job import NewJob
from outlast.core.reservation import NewReservation, Reservation, ReservationId
from outlast.store.contract.queues import Queue
from outlast.store.contract.reservations import Reserved
from outlast.store.rows import queues as queue_rows
from outlast.store.rows import reservations as reservation_rows
from outlast.store.sqlite import verbs
from outlast.store.sqlite.operations.base import SqliteOperations


class SqliteQueues(SqliteOperations):
    """Queues, and reservations of them."""

    async def set_queue(self, queue: Queue) -> None:
        await self._writer.submit(verbs.set_queue, [queue])

    async def queue(self, name: str) -> Queue:
        found = await self._reader.rows("queues.get", name=name)
        return queue_rows.queue(found[0], self._clock.now()) if found else Queue(name=name)

    async def queues(self) -> list[Queue]:
        found = await self._reader.rows("queues.all")
        return [queue_rows.queue(row, self._clock.now()) for row in found]

    async def pause(self, name: str, *, reason: str | None, span: timedelta | None) -> None:
        await self._writer.submit(verbs.pause, [(name, reason, span)])

    async def resume(self, name: str) -> bool:
        resumed: bool = (await self._writer.submit(verbs.resume, [name]))[0]
        return resumed

    async def renumber(self, queue: str) -> int:
        changed: int = (await self._writer.submit(verbs.renumber, [queue]))[0]
        return changed

    async def reserve(self, new: NewReservation, job: NewJob) -> Reserved:
        reserved: Reserved = (await self._writer.submit(verbs.reserve, [(new, job)]))[0]
        return reserved

    async def extend_reservation(self, reservation_id: ReservationId, *, span: timedelta) -> bool:
        kept: bool = (await self._writer.submit(verbs.keep, [(reservation_id, span)]))[0]
        return kept

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        found = await self._reservations("reservations.get", id=reservation_id)
        return found[0] if found else None

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        if active_only:
            return await self._reservations("reservations.held", limit=limit)
        return await self._reservations("reservations.latest", limit=limit)

    async def expired_reservations(self, *, limit: int) -> list[Reservation]:
        mono = self._clock.monotonic()
        return await self._reservations("reservations.lapsed", mono=mono, limit=limit)

    async def release_stale_reservations(self, *, limit: int) -> list[Reservation]:
        freed: list[Reservation] = (await self._writer.submit(verbs.free_reservations, [limit]))[0]
        return freed

    async def _reservations(self, name: str, **values: Any) -> list[Reservation]:
        found = await self._reader.rows(name, **values)
        return [reservation_rows.reservation(row) for row in found]

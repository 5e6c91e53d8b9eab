"""The contract's verbs beside those of jobs, each handed to the module that does it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from outlast.core.dossier import Dossier, Stray
from outlast.core.explain import Situation
from outlast.core.group import ClosingGroup, Group, NewGroup
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.overview import Overview
from outlast.core.record import Record, Swap
from outlast.core.reservation import NewReservation, Reservation, ReservationId
from outlast.core.run import Holder
from outlast.core.worker import WorkerInfo, WorkerRecord
from outlast.store.base import Queue
from outlast.store.keyvalue import (
    audits,
    grouping,
    places,
    records,
    reserving,
    setting,
    views,
    workers,
)
from outlast.store.keyvalue.desk import Desk
from outlast.store.reservations import Reserved


class Opened:
    """Something that has a desk while it is open."""

    @property
    def _desk(self) -> Desk:
        raise NotImplementedError


class KeyValueQueues(Opened):
    """Queues and their reservations."""

    async def set_queue(self, queue: Queue) -> None:
        await setting.set_queue(self._desk, queue)

    async def queue(self, name: str) -> Queue:
        return await setting.queue(self._desk, name)

    async def queues(self) -> list[Queue]:
        return await setting.listed(self._desk)

    async def pause(self, name: str, *, reason: str | None, span: timedelta | None) -> None:
        await setting.pause(self._desk, name, reason, span)

    async def resume(self, name: str) -> bool:
        return await setting.resume(self._desk, name)

    async def normalise(self, queue: str) -> int:
        return await places.normalise(self._desk, queue)

    async def reserve(self, new: NewReservation, job: NewJob) -> Reserved:
        return await reserving.reserve(self._desk, new, job)

    async def keep(self, reservation_id: ReservationId, *, span: timedelta) -> bool:
        return await reserving.keep(self._desk, reservation_id, span)

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        return await reserving.reservation(self._desk, reservation_id)

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        return await reserving.listed(self._desk, active_only=active_only, limit=limit)

    async def lapsed_reservations(self, *, limit: int) -> list[Reservation]:
        return await reserving.lapsed(self._desk, limit=limit)

    async def free_reservations(self, *, limit: int) -> list[Reservation]:
        return await reserving.free(self._desk, limit=limit)


class KeyValueGroups(Opened):
    """Groups."""

    async def add_group(self, group: NewGroup) -> bool:
        return await grouping.add_group(self._desk, group)

    async def seal_group(self, group_id: str) -> bool:
        return await grouping.seal_group(self._desk, group_id)

    async def stop_group(self, group_id: str, *, reason: str | None, skip: bool = False) -> bool:
        return await grouping.stop_group(self._desk, group_id, reason, skip=skip)

    async def group(self, group_id: str) -> Group | None:
        return await grouping.group(self._desk, group_id)

    async def find_groups(self, *, limit: int, before: int | None = None) -> list[Group]:
        return await grouping.find_groups(self._desk, limit=limit, before=before)

    async def groups_over(self, group_ids: Sequence[str]) -> list[bool | None]:
        return await grouping.groups_over(self._desk, group_ids)

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        return await grouping.closing_groups(self._desk, limit=limit)

    async def left_over(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        return await grouping.left_over(self._desk, group_id, after=after, limit=limit)

    async def sweep_groups(self, *, limit: int) -> int:
        return await grouping.sweep_groups(self._desk, limit=limit)

    async def expire_groups(self, *, older_than: timedelta, limit: int) -> int:
        return await grouping.expire_groups(self._desk, older_than=older_than, limit=limit)


class KeyValueAround(Opened):
    """Records, workers, and the reads for people and for `verify`."""

    async def record(self, kind: str, key: str) -> Record | None:
        return await records.record(self._desk, kind, key)

    async def records(self, kind: str) -> list[Record]:
        return await records.records(self._desk, kind)

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Record | None:
        wish = Swap(kind=kind, key=key, expected=expected, value=value)
        return await records.swap(self._desk, wish)

    async def enlist(self, worker: WorkerInfo) -> None:
        await workers.enlist(self._desk, worker)

    async def beat(self, holder: Holder, *, span: timedelta) -> bool:
        return await workers.beat(self._desk, holder, span=span)

    async def retire(self, holder: Holder) -> None:
        await workers.retire(self._desk, holder)

    async def workers(self) -> list[WorkerRecord]:
        return await workers.listed(self._desk)

    async def size(self) -> int:
        return await audits.size(self._desk)

    async def dossiers(self, *, after: int, limit: int) -> list[Dossier]:
        return await audits.dossiers(self._desk, after=after, limit=limit)

    async def strays(self, *, limit: int) -> list[Stray]:
        return await audits.strays(self._desk, limit=limit)

    async def overview(self, *, span: timedelta) -> Overview:
        return await views.overview(self._desk, span=span)

    async def situation(self, job_id: JobId) -> Situation | None:
        return await views.situation(self._desk, job_id)

    async def facts(self) -> Mapping[str, str]:
        return await self._desk.engine.facts()

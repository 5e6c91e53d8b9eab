"""The contract's verbs beside those of jobs, each handed to the module that does it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from outlast.core.audit.model import Dossier, Stray
from outlast.core.document import Record, Swap
from outlast.core.explain import Situation
from outlast.core.group import ClosingGroup, Group, NewGroup
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.overview import Overview
from outlast.core.reservation import NewReservation, Reservation, ReservationId
from outlast.core.run import Holder
from outlast.core.worker import WorkerInfo, WorkerRecord
from outlast.store.base import Queue
from outlast.store.contract.reservations import Reserved
from outlast.store.keyvalue.context import Desk
from outlast.store.keyvalue.operations import (
    audit,
    documents,
    groups,
    insight,
    positions,
    queues,
    reservations,
    workers,
)


class Opened:
    """Something that has a desk while it is open."""

    @property
    def _desk(self) -> Desk:
        raise NotImplementedError


class KeyValueQueues(Opened):
    """Queues and their reservations."""

    async def set_queue(self, queue: Queue) -> None:
        await queues.set_queue(self._desk, queue)

    async def queue(self, name: str) -> Queue:
        return await queues.queue(self._desk, name)

    async def queues(self) -> list[Queue]:
        return await queues.listed(self._desk)

    async def pause(self, name: str, *, reason: str | None, span: timedelta | None) -> None:
        await queues.pause(self._desk, name, reason, span)

    async def resume(self, name: str) -> bool:
        return await queues.resume(self._desk, name)

    async def normalise(self, queue: str) -> int:
        return await positions.normalise(self._desk, queue)

    async def reserve(self, new: NewReservation, job: NewJob) -> Reserved:
        return await reservations.reserve(self._desk, new, job)

    async def keep(self, reservation_id: ReservationId, *, span: timedelta) -> bool:
        return await reservations.keep(self._desk, reservation_id, span)

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        return await reservations.reservation(self._desk, reservation_id)

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        return await reservations.listed(self._desk, active_only=active_only, limit=limit)

    async def lapsed_reservations(self, *, limit: int) -> list[Reservation]:
        return await reservations.lapsed(self._desk, limit=limit)

    async def free_reservations(self, *, limit: int) -> list[Reservation]:
        return await reservations.free(self._desk, limit=limit)


class KeyValueGroups(Opened):
    """Groups."""

    async def add_group(self, group: NewGroup) -> bool:
        return await groups.add_group(self._desk, group)

    async def seal_group(self, group_id: str) -> bool:
        return await groups.seal_group(self._desk, group_id)

    async def stop_group(self, group_id: str, *, reason: str | None, skip: bool = False) -> bool:
        return await groups.stop_group(self._desk, group_id, reason, skip=skip)

    async def group(self, group_id: str) -> Group | None:
        return await groups.group(self._desk, group_id)

    async def find_groups(self, *, limit: int, before: int | None = None) -> list[Group]:
        return await groups.find_groups(self._desk, limit=limit, before=before)

    async def groups_over(self, group_ids: Sequence[str]) -> list[bool | None]:
        return await groups.groups_over(self._desk, group_ids)

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        return await groups.closing_groups(self._desk, limit=limit)

    async def left_over(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        return await groups.left_over(self._desk, group_id, after=after, limit=limit)

    async def sweep_groups(self, *, limit: int) -> int:
        return await groups.sweep_groups(self._desk, limit=limit)

    async def expire_groups(self, *, older_than: timedelta, limit: int) -> int:
        return await groups.expire_groups(self._desk, older_than=older_than, limit=limit)


class KeyValueAround(Opened):
    """Records, workers, and the reads for people and for `verify`."""

    async def record(self, kind: str, key: str) -> Record | None:
        return await documents.record(self._desk, kind, key)

    async def records(self, kind: str) -> list[Record]:
        return await documents.records(self._desk, kind)

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Record | None:
        wish = Swap(kind=kind, key=key, expected=expected, value=value)
        return await documents.swap(self._desk, wish)

    async def enlist(self, worker: WorkerInfo) -> None:
        await workers.enlist(self._desk, worker)

    async def beat(self, holder: Holder, *, span: timedelta) -> bool:
        return await workers.beat(self._desk, holder, span=span)

    async def retire(self, holder: Holder) -> None:
        await workers.retire(self._desk, holder)

    async def workers(self) -> list[WorkerRecord]:
        return await workers.listed(self._desk)

    async def size(self) -> int:
        return await audit.size(self._desk)

    async def dossiers(self, *, after: int, limit: int) -> list[Dossier]:
        return await audit.dossiers(self._desk, after=after, limit=limit)

    async def strays(self, *, limit: int) -> list[Stray]:
        return await audit.strays(self._desk, limit=limit)

    async def overview(self, *, span: timedelta) -> Overview:
        return await insight.overview(self._desk, span=span)

    async def situation(self, job_id: JobId) -> Situation | None:
        return await insight.situation(self._desk, job_id)

    async def facts(self) -> Mapping[str, str]:
        return await self._desk.engine.facts()

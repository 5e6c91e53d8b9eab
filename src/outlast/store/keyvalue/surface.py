"""The contract's verbs beside those of jobs, each handed to the module that does it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from outlast.core.audit.model import DanglingRecord, JobAudit
from outlast.core.document import Document, Swap
from outlast.core.explain import WaitFacts
from outlast.core.group import ClosingGroup, Group, NewGroup
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.overview import Overview
from outlast.core.reservation import NewReservation, Reservation, ReservationId
from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerInfo, WorkerRecord
from outlast.store.contract.queues import Queue
from outlast.store.contract.reservations import Reserved
from outlast.store.keyvalue.context import StoreContext
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
    def _desk(self) -> StoreContext:
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

    async def renumber(self, queue: str) -> int:
        return await positions.renumber(self._desk, queue)

    async def reserve(self, new: NewReservation, job: NewJob) -> Reserved:
        return await reservations.reserve(self._desk, new, job)

    async def extend_reservation(self, reservation_id: ReservationId, *, span: timedelta) -> bool:
        return await reservations.keep(self._desk, reservation_id, span)

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        return await reservations.reservation(self._desk, reservation_id)

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        return await reservations.listed(self._desk, active_only=active_only, limit=limit)

    async def expired_reservations(self, *, limit: int) -> list[Reservation]:
        return await reservations.lapsed(self._desk, limit=limit)

    async def release_stale_reservations(self, *, limit: int) -> list[Reservation]:
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

    async def groups_finished(self, group_ids: Sequence[str]) -> list[bool | None]:
        return await groups.groups_over(self._desk, group_ids)

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        return await groups.closing_groups(self._desk, limit=limit)

    async def remaining_members(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        return await groups.left_over(self._desk, group_id, after=after, limit=limit)

    async def mark_groups_closed(self, *, limit: int) -> int:
        return await groups.sweep_groups(self._desk, limit=limit)

    async def expire_groups(self, *, older_than: timedelta, limit: int) -> int:
        return await groups.expire_groups(self._desk, older_than=older_than, limit=limit)


class KeyValueAround(Opened):
    """Records, workers, and the reads for people and for `verify`."""

    async def document(self, kind: str, key: str) -> Document | None:
        return await documents.record(self._desk, kind, key)

    async def documents(self, kind: str) -> list[Document]:
        return await documents.records(self._desk, kind)

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Document | None:
        wish = Swap(kind=kind, key=key, expected=expected, value=value)
        return await documents.swap(self._desk, wish)

    async def register_worker(self, worker: WorkerInfo) -> None:
        await workers.enlist(self._desk, worker)

    async def heartbeat(self, holder: LeaseHolder, *, span: timedelta) -> bool:
        return await workers.beat(self._desk, holder, span=span)

    async def deregister_worker(self, holder: LeaseHolder) -> None:
        await workers.retire(self._desk, holder)

    async def workers(self) -> list[WorkerRecord]:
        return await workers.listed(self._desk)

    async def job_count(self) -> int:
        return await audit.size(self._desk)

    async def audit_jobs(self, *, after: int, limit: int) -> list[JobAudit]:
        return await audit.dossiers(self._desk, after=after, limit=limit)

    async def dangling_records(self, *, limit: int) -> list[DanglingRecord]:
        return await audit.strays(self._desk, limit=limit)

    async def overview(self, *, span: timedelta) -> Overview:
        return await insight.overview(self._desk, span=span)

    async def wait_facts(self, job_id: JobId) -> WaitFacts | None:
        return await insight.situation(self._desk, job_id)

    async def describe(self) -> Mapping[str, str]:
        return await self._desk.engine.describe()

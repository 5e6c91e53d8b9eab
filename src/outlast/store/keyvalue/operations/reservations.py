"""Reservations of queues for one job each."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

from outlast.core.job import NewJob
from outlast.core.ordering import first_position
from outlast.core.reservation import (
    HANDED_BACK,
    JOB_OVER,
    NewReservation,
    Reservation,
    ReservationId,
    ReservationStatus,
)
from outlast.core.state import WAITING
from outlast.store.contract.jobs import Added
from outlast.store.contract.notifications import Notification
from outlast.store.contract.reservations import Reserved
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange
from outlast.store.keyvalue.operations.add import put
from outlast.store.keyvalue.operations.base import KeyValueOperations, requires_open_store
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues, reservations
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.repositories.queues import register_queue
from outlast.store.keyvalue.repositories.reservations import ReservationRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL = 1_000_000


class KeyValueReservationOperations(KeyValueOperations):
    """Reserve queues; read, extend and release reservations."""

    @requires_open_store
    async def reserve(self, context: StoreContext, new: NewReservation, job: NewJob) -> Reserved:
        """Reserve the job's queue and add the job before all others of its priority.

        Atomic. If the queue is reserved already, returns that reservation and adds nothing.
        """
        first = await context.numbers(2)
        await register_queue(context, job.queue)
        reserved = await context.run_unit(
            partial(_reserve, context=context, new=new, job=job, first=first)
        )
        if reserved.created:
            context.notify(Notification(queues=frozenset({job.queue})))
        return reserved

    @requires_open_store
    async def extend_reservation(
        self, context: StoreContext, reservation_id: ReservationId, *, span: timedelta
    ) -> bool:
        """Extend an active reservation by `span` from now; return False if it has ended."""

        async def work(unit: UnitOfWork) -> bool:
            record = await reservations.find(unit, reservation_id)
            if record is None or not record.reservation.is_active:
                return False
            reservations.save(unit, reservations.extended(record, span, context))
            return True

        return await context.run_unit(work)

    async def reservation(self, reservation_id: ReservationId) -> Reservation | None:
        """Return a reservation, or None."""
        context = self._context
        record = await reservations.find(UnitOfWork(context.engine), reservation_id)
        return None if record is None else record.reservation

    async def reservations(self, *, active_only: bool = False, limit: int) -> list[Reservation]:
        """Return reservations, the latest first."""
        context = self._context
        if active_only:
            latest = sorted(await _active(context), key=lambda record: -record.seq)
            return [record.reservation for record in latest][:limit]
        found = await context.engine.range(
            KeyRange(key_layout.RESERVATION), limit=limit, reverse=True
        )
        return [reservations.from_value(entry.value).reservation for entry in found]

    async def expired_reservations(self, *, limit: int) -> list[Reservation]:
        """Return active reservations past their end, the longest expired first."""
        context = self._context
        over = [
            record for record in await _active(context) if context.leases.is_over(record.expiry)
        ]
        boot = context.leases.boot
        over.sort(key=lambda record: (record.expiry.boot == boot, record.expiry.at, record.seq))
        return [record.reservation for record in over[:limit]]

    @requires_open_store
    async def release_stale_reservations(
        self, context: StoreContext, *, limit: int
    ) -> list[Reservation]:
        """Expire reservations whose job ended or came back to wait; return them."""
        freed: list[Reservation] = []
        for record in sorted(await _active(context), key=lambda each: each.seq):
            if len(freed) == limit:
                break
            over = await context.run_unit(partial(_free, context=context, seq=record.seq))
            freed += [over] if over is not None else []
        return freed


async def _reserve(
    unit: UnitOfWork, *, context: StoreContext, new: NewReservation, job: NewJob, first: int
) -> Reserved:
    queue = await queues.load(unit, job.queue)
    if queue.reservation is not None:
        held = await reservations.load(unit, queue.reservation)
        if held is None and queue.reserved_for is not None:
            await job_repository.load(unit, queue.reserved_for)  # completes an intent that has it
        if held is None or not held.reservation.is_active:
            await unit.require_unchanged([queues.key(job.queue)])
        return Reserved(created=False, reservation=None if held is None else held.reservation)
    lowest = (await queues.ends(unit, job.queue, job.priority))[0]
    record = await put(unit, job, first, context.now(), reservation=first + 1)
    if isinstance(record, Added):
        # The process that added the job may have reserved the queue, too.
        await unit.require_unchanged([queues.key(job.queue)])
        is_refused = record.refused is not None
        return Reserved(
            created=False, existing=None if is_refused else record.id, refused=record.refused
        )
    _put_first(unit, record, lowest, queue.queue.gap)
    held = _hold(context, new, job, first + 1)
    reservations.save(unit, held, is_new=True)
    queues.save(unit, replace(queue, reservation=held.seq, reserved_for=job.id))
    return Reserved(created=True, reservation=held.reservation)


def _put_first(unit: UnitOfWork, record: JobRecord, lowest: int | None, gap: int) -> None:
    own = record.job.position
    position = first_position(own if lowest is None else min(own, lowest), gap)
    job_repository.save(unit, record, replace(record, job=replace(record.job, position=position)))


def _hold(context: StoreContext, new: NewReservation, job: NewJob, seq: int) -> ReservationRecord:
    now = context.now()
    held = Reservation(
        id=new.id,
        queue=job.queue,
        job_id=job.id,
        caller=new.caller,
        request=new.request,
        status=ReservationStatus.ACTIVE,
        reason=None,
        reserved_at=now,
        expires_at=now + new.span,
        ended_at=None,
    )
    expiry = context.leases.end(new.span)
    return ReservationRecord(reservation=held, seq=seq, expiry=expiry, span=new.span)


async def _free(unit: UnitOfWork, *, context: StoreContext, seq: int) -> Reservation | None:
    record = await reservations.load(unit, seq)
    if record is None or not record.reservation.is_active:
        return None
    job = await job_repository.load(unit, record.reservation.job_id)
    reason = _why_free(context, record, job)
    if reason is None:
        return None
    if job is not None:
        unit.require(key_layout.job_key(job.job))
    return await reservations.close(unit, record, ReservationStatus.EXPIRED, reason, context.now())


def _why_free(
    context: StoreContext, record: ReservationRecord, job: JobRecord | None
) -> str | None:
    if job is None or job.job.is_final:
        return JOB_OVER
    is_back = job.job.token > 0 and job.job.state in WAITING
    return HANDED_BACK if is_back and context.leases.is_over(record.expiry) else None


async def _active(context: StoreContext) -> list[ReservationRecord]:
    """Return the active reservations: at most one per queue, so there are few."""
    unit = UnitOfWork(context.engine)
    entries = await unit.range(KeyRange(key_layout.QUEUE), limit=ALL)
    numbers = [e.value["reservation"] for e in entries if "reservation" in e.value]
    await unit.fetch([reservations.key(number) for number in numbers])
    found = [await reservations.load(unit, number) for number in numbers]
    return [record for record in found if record is not None and record.reservation.is_active]

"""Apply changes: each in one unit of work, if its token is current and its guard holds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import assert_never

from outlast.core.decide import Change, Guard, Successor
from outlast.core.event import EventKind
from outlast.core.ids import RunId
from outlast.core.state import FINAL, WAITING, State
from outlast.core.transition import (
    apply_change,
    is_on_record,
    is_storable_change,
    start_missing_run,
    to_successor,
    yield_to_cancel,
)
from outlast.store.contract.notifications import Notification
from outlast.store.contract.transfer import (
    allowed_while_sealed,
)
from outlast.store.keyvalue import intents, key_layout
from outlast.store.keyvalue.batching import run_in_chunks
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key
from outlast.store.keyvalue.operations import positions
from outlast.store.keyvalue.operations.base import KeyValueOperations
from outlast.store.keyvalue.operations.jobs import require_kept
from outlast.store.keyvalue.outcomes import FailedItem, require_all, succeeded
from outlast.store.keyvalue.repositories import (
    groups,
    queues,
    reservations,
    runs,
    slots,
)
from outlast.store.keyvalue.repositories import (
    jobs as job_repository,
)
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of one change; `plan` is the intent that moves further jobs."""

    is_written: bool = False
    notification: Notification | None = None
    plan: Key | None = None


class KeyValueApplyOperations(KeyValueOperations):
    """Apply changes."""

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        """Apply changes and return for each whether it was written.

        Routine ends go in concurrent chunks, all others in the order given. Each change is atomic.
        """
        is_allowed = all(map(allowed_while_sealed, changes))
        context = self._context if is_allowed else await self._gated()
        return await apply_changes(context, changes)


async def apply_changes(context: StoreContext, changes: Sequence[Change]) -> list[bool]:
    """Apply changes as `KeyValueApplyOperations.apply` does, in a context that may write them."""
    repeated = len({change.job_id for change in changes}) < len(changes)
    outcomes = await run_in_chunks(
        context,
        changes,
        partial(_apply, context),
        records=10,
        is_alone=lambda change: repeated or not _is_routine(change),
        is_order_needed=repeated or any(change.place or change.edit for change in changes),
        size=lambda change: len(change.result or "") + sum(map(len, change.artifacts)),
        refused=lambda _, __: Applied(),
    )
    for answer in succeeded(outcomes):
        if answer.notification is not None:
            context.notify(answer.notification)
    return require_all(
        [each if isinstance(each, FailedItem) else each.is_written for each in outcomes]
    )


def _is_routine(change: Change) -> bool:
    """Return True if the change closes a run and concerns no other job but those of its group."""
    return change.move.guard is Guard.OPEN and change.move.kind is None


async def _apply(context: StoreContext, changes: Sequence[Change]) -> list[Applied]:
    """Apply several routine changes, or one of any kind, in one unit of work."""
    # Drawn once: the unit of work may be repeated.
    has_successor = any(change.successor is not None for change in changes)
    seq = await context.numbers(1) if has_successor else 0

    async def work(unit: UnitOfWork) -> list[Applied]:
        await job_repository.load_many(
            unit, [change.job_id for change in changes]
        )  # in one request
        return [await _apply_one(unit, context, change, seq) for change in changes]

    answers = await context.run_unit(work)
    for plan in [answer.plan for answer in answers if answer.plan is not None]:
        await intents.unless_store_fails(positions.finish_plan(context, plan))
    return answers


async def _apply_one(unit: UnitOfWork, context: StoreContext, change: Change, seq: int) -> Applied:
    if not is_storable_change(change):
        return Applied()
    record, now = await job_repository.load(unit, change.job_id), context.now()
    if record is None:
        return Applied()
    if change.token != record.job.token or not await _guard_holds(unit, context, record, change):
        is_written = await _is_on_record(unit, record, change)
        if not is_written:
            await _record_refusal(unit, record, change, now)
        return Applied(is_written=is_written)
    if not await positions.may_change(unit, record, change, now):
        return Applied()
    if change.edit is None and change.place is None:
        notification = await _settle(unit, context, record, change, seq)
        return Applied(is_written=True, notification=notification)
    plan = None
    if change.edit is not None:
        await positions.edit(unit, record, change, now)
    else:
        plan = await positions.move(unit, record, change, now)
    await _record(unit, change, EventKind(change.move.kind or ""), now, None)
    notification = Notification(queues=frozenset({record.job.queue}))
    return Applied(is_written=True, notification=notification, plan=plan)


async def _guard_holds(
    unit: UnitOfWork, context: StoreContext, record: JobRecord, change: Change
) -> bool:
    job = record.job
    match change.move.guard:
        case Guard.OPEN:
            return record.is_open
        case Guard.LAPSED:
            return record.lease is not None and context.leases.is_over(record.lease)
        case Guard.WAITING:
            return job.state in WAITING
        case Guard.RESERVATION_EXPIRED:
            held = await reservations.active_of(unit, record) if job.state in WAITING else None
            return held is not None and context.leases.is_over(held.expiry)
        case Guard.STATE:
            is_followed = change.successor is not None and record.successor is not None
            return job.state is change.was and job.state in WAITING | FINAL and not is_followed
        case Guard.DETACHED:
            return record.is_detached
    assert_never(change.move.guard)


async def _is_on_record(unit: UnitOfWork, record: JobRecord, change: Change) -> bool:
    """Return True if an earlier attempt, whose reply was lost, wrote the change."""
    if change.move.run is None:
        return False
    run = await runs.ended(unit, record.job, change.token)
    ended = await runs.whole(unit, [run] if run is not None else [])
    return is_on_record(change, ended[0] if ended else None, record.successor)


async def _record_refusal(
    unit: UnitOfWork, record: JobRecord, change: Change, now: datetime
) -> None:
    if change.move.guard is Guard.OPEN:
        await require_kept(unit, record)  # no event without its job
        await job_repository.append_event(
            unit,
            EventKind.LATE_WRITE_REFUSED,
            at=now,
            job_id=change.job_id,
            token=change.token,
            reason=change.move.to.value,
        )


async def _settle(
    unit: UnitOfWork, context: StoreContext, record: JobRecord, change: Change, seq: int
) -> Notification:
    now, was = context.now(), record
    if change.move.guard is Guard.DETACHED:
        record, change = await _taken(unit, record, change, now)
    run_id, error = await _run_id(unit, record), change.error
    if record.run_id is not None and change.move.run is not None:
        error = await runs.close(unit, record, change, now)
        record = replace(record, lease=None, lease_until=None, run_id=None, run_started_at=None)
    change = yield_to_cancel(was.job, change)
    moved = replace(record, job=apply_change(record.job, change, now))
    if change.move.to is not State.RUNNING:
        moved = replace(moved, is_detached=False, last_error=error or record.last_error)
    if change.successor is not None:
        await _insert_successor(unit, moved, change.successor, seq, now)
        moved = replace(moved, successor=change.successor.id, is_followed=True)
    if change.move.to in FINAL:
        moved = _without_active_key(unit, moved, change.successor)
        await reservations.end_with(unit, moved, change, now)
    if change.move.kind is EventKind.MISFIRE:
        await slots.misfire(unit, moved)
    job_repository.save(unit, was, moved)
    if change.move.kind is not None:
        await _record(unit, change, change.move.kind, now, run_id)
    has_successor = change.successor is not None
    await groups.advance(unit, was, moved, now, has_successor=has_successor)
    return _notification(moved, change)


def _notification(record: JobRecord, change: Change) -> Notification:
    is_work = record.job.state is State.QUEUED or change.successor is not None
    makes_room = record.is_counted and change.move.run is not None
    concerned = {record.job.queue} if is_work or makes_room or record.reservation else set()
    concerned |= {""} if record.member else set()  # another member may become ready, in any queue
    is_asked = change.move.to is State.RUNNING
    return Notification(queues=frozenset(concerned), ended=record.job.is_final, cancelled=is_asked)


async def _run_id(unit: UnitOfWork, record: JobRecord) -> RunId | None:
    """Return the run that the event is about: the open one, or the last of a detached job."""
    if record.run_id is not None or not record.is_detached:
        return record.run_id
    closed = await runs.closed(unit, record.job)
    return closed[-1].run_id if closed else None


async def _record(
    unit: UnitOfWork, change: Change, kind: EventKind, now: datetime, run_id: RunId | None
) -> None:
    await job_repository.append_event(
        unit,
        kind,
        at=now,
        job_id=change.job_id,
        run_id=run_id,
        token=change.token,
        reason=change.reason,
        detail=change.event_detail,
    )


async def _taken(
    unit: UnitOfWork, record: JobRecord, change: Change, now: datetime
) -> tuple[JobRecord, Change]:
    """Put a detached job behind all others and open the run it lacks; it keeps its successor."""
    position = await queues.new_position(unit, record.job.queue, 0)
    job = replace(record.job, priority=0, position=position, available_at=now)
    if record.successor is not None:
        change = replace(change, successor=None)
    if change.run_id is None:
        return replace(record, job=job), change
    job = start_missing_run(job, now)
    taken = replace(record, job=job, run_id=change.run_id, run_started_at=now)
    return taken, replace(change, token=job.token)


async def _insert_successor(
    unit: UnitOfWork, record: JobRecord, successor: Successor, seq: int, now: datetime
) -> None:
    """Add the next job of the chain, with its own copy of the params."""
    [job] = await job_repository.whole_jobs(unit, [record])
    position = await queues.new_position(unit, job.queue, job.priority)
    following = to_successor(job, successor, seq=seq, position=position, now=now)
    new = JobRecord(
        job=following,
        root_seq=record.root_seq,
        active_key=record.active_key,
        member=record.member,
        last_error=record.last_error,
    )
    job_repository.save(unit, None, new)


def _without_active_key(
    unit: UnitOfWork, record: JobRecord, successor: Successor | None
) -> JobRecord:
    """Delete the active key, or pass it to the successor."""
    if record.active_key is None:
        return record
    key = key_layout.active_key(record.active_key)
    if successor is None:
        unit.delete(key)
    else:
        held = {"job_id": successor.id, "root_id": record.job.root_id, "key": record.active_key}
        unit.put(key, held)
    return replace(record, active_key=None)

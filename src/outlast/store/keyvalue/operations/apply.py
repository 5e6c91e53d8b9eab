"""Writing changes: each in one unit, if its token is current and its guard holds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import assert_never

from outlast.core.decide import Change, Guard, Successor
from outlast.core.event import EventKind
from outlast.core.ids import RunId
from outlast.core.run import UNKNOWN_HOLDER
from outlast.core.state import FINAL, WAITING, RunStatus, State
from outlast.errors import PayloadTooLarge
from outlast.store.contract.notifications import Notification
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_in_chunks
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key
from outlast.store.keyvalue.operations import positions
from outlast.store.keyvalue.operations.jobs import require_kept
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
from outlast.store.keyvalue.texts import can_be_kept
from outlast.store.keyvalue.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one change."""

    is_written: bool = False
    hint: Notification | None = None
    plan: Key | None = None  # positions that follow from it


async def apply(desk: StoreContext, changes: Sequence[Change]) -> list[bool]:
    """Routine ends at the same time, everything else in its turn."""
    repeated = len({change.job_id for change in changes}) < len(changes)
    answers = await run_in_chunks(
        desk,
        changes,
        partial(_apply, desk),
        records=10,
        is_alone=lambda change: repeated or not _is_routine(change),
        size=lambda change: len(change.result or "") + sum(map(len, change.artifacts)),
    )
    for hint in (answer.hint for answer in answers):
        if hint is not None:
            desk.notify(hint)
    return [answer.is_written for answer in answers]


def _is_routine(change: Change) -> bool:
    """It closes a run and concerns no other job, or at most its group."""
    return change.move.guard is Guard.OPEN and change.move.kind is None


async def _apply(desk: StoreContext, changes: Sequence[Change]) -> list[Applied]:
    """Several routine ones, or one of any kind."""
    # Drawn once, for the unit may be done several times.
    has_successor = any(change.successor is not None for change in changes)
    seq = await desk.numbers(1) if has_successor else 0

    async def work(unit: UnitOfWork) -> list[Applied]:
        await job_repository.load_many(unit, [change.job_id for change in changes])  # read at once
        return [await _apply_one(unit, desk, change, seq) for change in changes]

    try:
        answers = await desk.run_unit(work)
    except PayloadTooLarge:
        if len(changes) == 1:
            return [Applied()]
        return [answer for change in changes for answer in await _apply(desk, [change])]
    for plan in [answer.plan for answer in answers if answer.plan is not None]:
        await positions.finish_plan(desk, plan)
    return answers


async def _apply_one(unit: UnitOfWork, desk: StoreContext, change: Change, seq: int) -> Applied:
    if not can_be_kept(change):
        return Applied()
    kept, now = await job_repository.load(unit, change.job_id), desk.now()
    if kept is None:
        return Applied()
    if change.token != kept.job.token or not await _guard_holds(unit, desk, kept, change):
        await _record_refusal(unit, kept, change, now)
        return Applied()
    if not await positions.may_change(unit, kept, change, now):
        return Applied()
    if change.edit is None and change.place is None:
        hint = await _settle(unit, desk, kept, change, seq)
        return Applied(is_written=True, hint=hint)
    plan = None
    if change.edit is not None:
        await positions.edit(unit, kept, change, now)
    else:
        plan = await positions.move(unit, kept, change, now)
    await _record(unit, change, EventKind(change.move.kind or ""), now, None)
    hint = Notification(queues=frozenset({kept.job.queue}))
    return Applied(is_written=True, hint=hint, plan=plan)


async def _guard_holds(
    unit: UnitOfWork, desk: StoreContext, kept: JobRecord, change: Change
) -> bool:
    job = kept.job
    match change.move.guard:
        case Guard.OPEN:
            return kept.is_open
        case Guard.LAPSED:
            return kept.lease is not None and desk.leases.is_over(kept.lease)
        case Guard.WAITING:
            return job.state in WAITING
        case Guard.RESERVATION_EXPIRED:
            held = await reservations.active_of(unit, kept) if job.state in WAITING else None
            return held is not None and desk.leases.is_over(held.silence)
        case Guard.STATE:
            is_followed = change.successor is not None and kept.successor is not None
            return job.state is change.was and job.state in WAITING | FINAL and not is_followed
        case Guard.DETACHED:
            return kept.is_detached
    assert_never(change.move.guard)


async def _record_refusal(unit: UnitOfWork, kept: JobRecord, change: Change, now: datetime) -> None:
    if change.move.guard is Guard.OPEN:
        await require_kept(unit, kept)  # an event of a job that is gone belongs to nobody
        await job_repository.append_event(
            unit,
            EventKind.LATE_WRITE_REFUSED,
            at=now,
            job_id=change.job_id,
            token=change.token,
            reason=change.move.to.value,
        )


async def _settle(
    unit: UnitOfWork, desk: StoreContext, kept: JobRecord, change: Change, seq: int
) -> Notification:
    now, was = desk.now(), kept
    if change.move.guard is Guard.DETACHED:
        kept, change = await _taken(unit, kept, change, now)
    run_id = await _run_id(unit, kept)
    if kept.run_id is not None and change.move.run is not None:
        await runs.close(unit, kept, change, now)
        kept = replace(kept, lease=None, lease_until=None, run_id=None, run_started_at=None)
    change = _yielded(was, change)
    moved = _moved(kept, change, now)
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
    return _hint(moved, change)


def _hint(kept: JobRecord, change: Change) -> Notification:
    is_work = kept.job.state is State.QUEUED or change.successor is not None
    makes_room = kept.is_counted and change.move.run is not None
    concerned = {kept.job.queue} if is_work or makes_room or kept.reservation else set()
    concerned |= {""} if kept.member else set()  # another member may go on, in whatever queue
    is_asked = change.move.to is State.RUNNING
    return Notification(queues=frozenset(concerned), ended=kept.job.is_final, cancelled=is_asked)


async def _run_id(unit: UnitOfWork, kept: JobRecord) -> RunId | None:
    """Of the run that the event is about: the open one, or the last of a job adrift."""
    if kept.run_id is not None or not kept.is_detached:
        return kept.run_id
    closed = await runs.closed(unit, kept.job)
    return closed[-1].run_id if closed else None


async def _record(
    unit: UnitOfWork, change: Change, kind: EventKind, now: datetime, run_id: RunId | None
) -> None:
    detail = None if change.move.run is RunStatus.FAILED else change.error  # its run has that
    await job_repository.append_event(
        unit,
        kind,
        at=now,
        job_id=change.job_id,
        run_id=run_id,
        token=change.token,
        reason=change.reason,
        detail=detail,
    )


async def _taken(
    unit: UnitOfWork, kept: JobRecord, change: Change, now: datetime
) -> tuple[JobRecord, Change]:
    """A job adrift, behind all others and with the run it lacked; its successor it keeps."""
    position = await queues.new_position(unit, kept.job.queue, 0)
    job = replace(kept.job, priority=0, position=position, available_at=now)
    if kept.successor is not None:
        change = replace(change, successor=None)
    if change.run_id is None:
        return replace(kept, job=job), change
    job = replace(
        job,
        token=job.token + 1,
        holder=UNKNOWN_HOLDER.instance_id,
        boot_id=UNKNOWN_HOLDER.boot_id,
        started_at=job.started_at or now,
    )
    taken = replace(kept, job=job, run_id=change.run_id, run_started_at=now)
    return taken, replace(change, token=job.token)


def _yielded(kept: JobRecord, change: Change) -> Change:
    if not (change.move.yields_to_cancel and kept.job.cancel_requested):
        return change
    move = replace(change.move, to=State.CANCELLED, kind=EventKind.CANCELLED)
    return replace(change, move=move, reason="cancel_requested", successor=None)


def _moved(kept: JobRecord, change: Change, now: datetime) -> JobRecord:
    to, job = change.move.to, kept.job
    if to is State.RUNNING:
        return replace(kept, job=replace(job, cancel_requested=True))
    job = replace(
        job,
        state=to,
        cancel_requested=False,
        progress=None,
        failures=job.failures if change.failures is None else change.failures,
        losses=job.losses if change.losses is None else change.losses,
    )
    kept = replace(kept, job=job, is_detached=False, last_error=change.error or kept.last_error)
    if job.finished_at is not None and to is change.was:
        return kept  # an end that gets its successor
    if to in FINAL:
        # Given up later, it still ended when it failed.
        ended = replace(job, reason=change.reason, finished_at=job.finished_at or now)
        return replace(kept, job=ended)
    keeps_its_time = not change.delay and to is not State.RETRY_WAIT
    due = job.available_at if keeps_its_time else now + change.delay
    return replace(kept, job=replace(job, available_at=due))


async def _insert_successor(
    unit: UnitOfWork, kept: JobRecord, successor: Successor, seq: int, now: datetime
) -> None:
    """The next of the chain: what was asked and what was counted, and nothing of what was done."""
    job = kept.job
    following = replace(
        job,
        id=successor.id,
        seq=seq,
        position=await queues.new_position(unit, job.queue, job.priority),
        created_at=now,
        available_at=now + successor.delay,
        start_deadline=None,
        retry_of=job.id,
        state=State.SCHEDULED if successor.delay else State.QUEUED,
        reason=None,
        token=0,
        holder=None,
        boot_id=None,
        started_at=None,
        finished_at=None,
    )
    new = JobRecord(
        job=following,
        root_seq=kept.root_seq,
        active_key=kept.active_key,
        member=kept.member,
        last_error=kept.last_error,
    )
    job_repository.save(unit, None, new)


def _without_active_key(
    unit: UnitOfWork, kept: JobRecord, successor: Successor | None
) -> JobRecord:
    """Freed, or handed to the successor."""
    if kept.active_key is None:
        return kept
    key = key_layout.active_key(kept.active_key)
    if successor is None:
        unit.delete(key)
    else:
        held = {"job_id": successor.id, "root_id": kept.job.root_id, "key": kept.active_key}
        unit.put(key, held)
    return replace(kept, active_key=None)

"""How the model store writes one change."""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from outlast.clock import Clock
from outlast.core.decide import Change, Guard, Successor
from outlast.core.event import EventKind
from outlast.core.ids import RunId
from outlast.core.job import Job
from outlast.core.limits import (
    MAX_ERROR,
    MAX_EXIT_CODE,
    MAX_PATH,
    MAX_PAYLOAD,
    MIN_EXIT_CODE,
    is_storable,
)
from outlast.core.run import UNKNOWN_HOLDER
from outlast.core.state import FINAL, WAITING, RunStatus, State
from outlast.testing.model import positions, reservations, schedules
from outlast.testing.model.claim import open_run
from outlast.testing.model.groups import advance
from outlast.testing.model.tables import Tables
from outlast.testing.model_json import is_json, is_text


def apply_change(tables: Tables, change: Change, clock: Clock) -> bool:
    """Write the change if its token is current and its guard holds; whether it did."""
    job = tables.jobs.get(change.job_id)
    if job is None or not _can_be_kept(change):
        return False
    if change.token != job.token or not _guard_holds(tables, job, change, clock):
        _record_refusal(tables, change, clock.now())
        return False
    if not positions.may_change(tables, job, change, clock.now()):
        return False
    _write(tables, job, change, clock.now())
    return True


def _can_be_kept(change: Change) -> bool:
    return (
        is_text(change.error, MAX_ERROR)
        and (change.result is None or is_json(change.result, MAX_PAYLOAD))
        and _is_path(change.log_path)
        and MIN_EXIT_CODE <= (change.exit_code or 0) <= MAX_EXIT_CODE
    )


def _is_path(text: str | None) -> bool:
    return text is None or (is_storable(text) and 0 < len(text) <= MAX_PATH)


def _guard_holds(tables: Tables, job: Job, change: Change, clock: Clock) -> bool:
    match change.move.guard:
        case Guard.OPEN:
            return tables.is_open(job)
        case Guard.LAPSED:
            return tables.is_open(job) and tables.leases[job.id].is_past(clock)
        case Guard.WAITING:
            return job.state in WAITING
        case Guard.RESERVATION_EXPIRED:
            return job.state in WAITING and reservations.is_silent(tables, job.id, clock)
        case Guard.STATE:
            is_followed = change.successor is not None and job.id in tables.successors
            return job.state is change.was and job.state in WAITING | FINAL and not is_followed
        case Guard.DETACHED:
            return tables.is_adrift(job)
    assert_never(change.move.guard)


def _record_refusal(tables: Tables, change: Change, now: datetime) -> None:
    if change.move.guard is Guard.OPEN:
        late, wanted = EventKind.LATE_WRITE_REFUSED, change.move.to.value
        tables.document(change, late, at=now, run_id=None, reason=wanted)


def _write(tables: Tables, job: Job, change: Change, now: datetime) -> None:
    if change.edit is not None:
        positions.edit(tables, job, change, now)
    elif change.place is not None:
        positions.move(tables, job, change)
    else:
        _settle(tables, job, change, now)
        return
    _record(tables, change, EventKind(change.move.kind or ""), now, None)


def _settle(tables: Tables, job: Job, change: Change, now: datetime) -> None:
    if change.move.guard is Guard.DETACHED:
        job, change = _taken(tables, job, change, now)
    run_id = tables.runs[job.id][-1].run_id if job.state is State.RUNNING else None
    if tables.is_open(job) and change.move.run is not None:
        tables.close_run(change, now)
    change = _yielded(job, change)
    tables.jobs[job.id] = _moved(job, change, now)
    if change.successor is not None:
        _insert_successor(tables, tables.jobs[job.id], change.successor, now)
    if change.move.to in FINAL:
        _pass_on_active_keys(tables, job, change.successor)
        reservations.end(tables, change, now)
    if change.move.kind is EventKind.MISFIRE:
        schedules.misfired(tables, job.id)
    if change.move.kind is not None:
        _record(tables, change, change.move.kind, now, run_id)
    advance(tables, job, change, now)


def _record(
    tables: Tables, change: Change, kind: EventKind, now: datetime, run_id: RunId | None
) -> None:
    detail = None if change.move.run is RunStatus.FAILED else change.error  # its run has that
    tables.document(change, kind, at=now, run_id=run_id, reason=change.reason, detail=detail)


def _taken(tables: Tables, job: Job, change: Change, now: datetime) -> tuple[Job, Change]:
    """A job adrift, behind all others and with the run it lacked; its successor it keeps."""
    position = tables.new_position(job.queue, 0)
    job = replace(job, priority=0, position=position, available_at=now)
    if job.id in tables.successors:
        change = replace(change, successor=None)
    if change.run_id is None:
        return job, change
    open_run(tables, job, change.run_id, UNKNOWN_HOLDER, now)
    change = replace(change, token=job.token + 1)
    tables.close_run(change, now)
    return tables.jobs[job.id], change


def _yielded(job: Job, change: Change) -> Change:
    if not (change.move.yields_to_cancel and job.cancel_requested):
        return change
    move = replace(change.move, to=State.CANCELLED, kind=EventKind.CANCELLED)
    return replace(change, move=move, reason="cancel_requested", successor=None)


def _moved(job: Job, change: Change, now: datetime) -> Job:
    to = change.move.to
    if to is State.RUNNING:
        return replace(job, cancel_requested=True)
    job = replace(
        job,
        state=to,
        cancel_requested=False,
        progress=None,
        failures=job.failures if change.failures is None else change.failures,
        losses=job.losses if change.losses is None else change.losses,
    )
    if job.finished_at is not None and to is change.was:
        return job  # an end that gets its successor
    if to in FINAL:
        # Given up later, it still ended when it failed.
        return replace(job, reason=change.reason, finished_at=job.finished_at or now)
    keeps_its_time = not change.delay and to is not State.RETRY_WAIT
    return job if keeps_its_time else replace(job, available_at=now + change.delay)


def _insert_successor(tables: Tables, job: Job, successor: Successor, now: datetime) -> None:
    """The next of the chain: what was asked and what was counted, and nothing of what was done."""
    if job.id in tables.members:
        tables.members[successor.id] = tables.members[job.id]
    tables.insert(
        replace(
            job,
            id=successor.id,
            seq=next(tables.seqs),
            position=tables.new_position(job.queue, job.priority),
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
    )


def _pass_on_active_keys(tables: Tables, job: Job, successor: Successor | None) -> None:
    held = [key for key, holder in tables.active_keys.items() if holder == job.id]
    for key in held:
        del tables.active_keys[key]
        if successor is not None:
            tables.active_keys[key] = successor.id

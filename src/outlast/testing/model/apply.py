"""Apply changes to the model store."""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from outlast.clock import Clock
from outlast.core import transition
from outlast.core.decide import Change, Guard, Successor
from outlast.core.event import EventKind
from outlast.core.ids import RunId
from outlast.core.job import Job
from outlast.core.run import UNKNOWN_HOLDER
from outlast.core.state import FINAL, WAITING, State
from outlast.core.transition import is_storable_change, to_successor, yield_to_cancel
from outlast.testing.model import positions, reservations, schedules
from outlast.testing.model.claim import open_run
from outlast.testing.model.groups import advance
from outlast.testing.model.tables import Tables


def apply_change(tables: Tables, change: Change, clock: Clock) -> bool:
    """Write the change if its token is current and its guard holds; return whether it did."""
    job = tables.jobs.get(change.job_id)
    if job is None or not is_storable_change(change):
        return False
    if change.token != job.token or not _guard_holds(tables, job, change, clock):
        if _is_on_record(tables, change):
            return True
        _record_refusal(tables, change, clock.now())
        return False
    if not positions.may_change(tables, job, change, clock.now()):
        return False
    _write(tables, job, change, clock.now())
    return True


def _guard_holds(tables: Tables, job: Job, change: Change, clock: Clock) -> bool:
    match change.move.guard:
        case Guard.OPEN:
            return tables.is_open(job)
        case Guard.LAPSED:
            return tables.is_open(job) and tables.leases[job.id].is_past(clock)
        case Guard.WAITING:
            return job.state in WAITING
        case Guard.RESERVATION_EXPIRED:
            return job.state in WAITING and reservations.is_expired(tables, job.id, clock)
        case Guard.STATE:
            is_followed = change.successor is not None and job.id in tables.successors
            return job.state is change.was and job.state in WAITING | FINAL and not is_followed
        case Guard.DETACHED:
            return tables.is_detached(job)
    assert_never(change.move.guard)


def _is_on_record(tables: Tables, change: Change) -> bool:
    run = next((run for run in tables.runs[change.job_id] if run.token == change.token), None)
    return transition.is_on_record(change, run, tables.successors.get(change.job_id))


def _record_refusal(tables: Tables, change: Change, now: datetime) -> None:
    if change.move.guard is Guard.OPEN:
        late, wanted = EventKind.LATE_WRITE_REFUSED, change.move.to.value
        tables.append_event(change, late, at=now, run_id=None, reason=wanted)


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
    change = yield_to_cancel(job, change)
    tables.jobs[job.id] = transition.apply_change(job, change, now)
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
    detail = change.event_detail
    tables.append_event(change, kind, at=now, run_id=run_id, reason=change.reason, detail=detail)


def _taken(tables: Tables, job: Job, change: Change, now: datetime) -> tuple[Job, Change]:
    """Put a detached job behind all others and open the run it lacks; it keeps its successor."""
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


def _insert_successor(tables: Tables, job: Job, successor: Successor, now: datetime) -> None:
    """Add the next job of the chain."""
    if job.id in tables.members:
        tables.members[successor.id] = tables.members[job.id]
    position = tables.new_position(job.queue, job.priority)
    seq = next(tables.seqs)
    tables.insert(to_successor(job, successor, seq=seq, position=position, now=now))


def _pass_on_active_keys(tables: Tables, job: Job, successor: Successor | None) -> None:
    held = [key for key, holder in tables.active_keys.items() if holder == job.id]
    for key in held:
        del tables.active_keys[key]
        if successor is not None:
            tables.active_keys[key] = successor.id

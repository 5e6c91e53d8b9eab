"""Edit and move waiting jobs of the model store, and renumber positions."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from outlast.core.decide import Change
from outlast.core.event import EventKind, EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.ordering import renumber_positions, sort_key
from outlast.core.position import move_job
from outlast.core.state import WAITING
from outlast.core.sync_coroutine import run_without_waiting
from outlast.core.transition import apply_edit, is_storable_edit
from outlast.core.waiting_line import InMemoryWaitingLine, WaitingJob
from outlast.testing.model.tables import Tables


def may_change(tables: Tables, job: Job, change: Change, now: datetime) -> bool:
    """Return True if the edit is valid, and the target of a move waits in the same line."""
    if change.edit is not None and not is_storable_edit(job, change.edit, now):
        return False
    if change.place is None or change.place.target is None:
        return True
    return any(other.id == change.place.target != job.id for other in _waiting_line(tables, job))


def edit(tables: Tables, job: Job, change: Change, now: datetime) -> None:
    """Write the edit of the change."""
    assert change.edit is not None
    position, priority = job.position, change.edit.priority
    if priority not in (None, job.priority):
        position = tables.new_position(job.queue, priority)
    tables.jobs[job.id] = apply_edit(job, change, position=position, now=now)


def move(tables: Tables, job: Job, change: Change) -> None:
    """Move the job to the position that the change asks for."""
    assert change.place is not None
    target = change.place.target
    line = InMemoryWaitingLine(map(_waiting_job, _waiting_line(tables, job)))
    run_without_waiting(
        move_job(
            line,
            line.write,
            change.place.where,
            moved=job.seq,
            target=None if target is None else tables.jobs[target].seq,
            gap=tables.queue(job.queue).gap,
        )
    )
    _write_positions(tables, {JobId(each.id): each.position for each in line.changed})


def renumber(tables: Tables, name: str, now: datetime) -> int:
    """Make the positions of a queue even; return how many changed."""
    queue = tables.queue(name)
    waiting = [job for job in tables.jobs.values() if job.queue == name and job.state in WAITING]
    changed: dict[JobId, int] = {}
    for priority in {job.priority for job in waiting}:
        line = sorted((job for job in waiting if job.priority == priority), key=sort_key)
        even = renumber_positions([job.position for job in line], queue.ordering, queue.gap)
        pairs = zip(line, even, strict=True)
        changed |= {job.id: position for job, position in pairs if job.position != position}
    if changed:
        _write_positions(tables, changed)
        tables.removed.append(_renumbered_event(tables, name, len(changed), now))
    return len(changed)


def _waiting_line(tables: Tables, like: Job) -> list[Job]:
    return [
        job
        for job in tables.jobs.values()
        if job.state in WAITING and (job.queue, job.priority) == (like.queue, like.priority)
    ]


def _write_positions(tables: Tables, positions: Mapping[JobId, int]) -> None:
    for job_id, position in positions.items():
        tables.jobs[job_id] = replace(tables.jobs[job_id], position=position)


def _waiting_job(job: Job) -> WaitingJob:
    order = (job.available_at, job.created_at, job.seq)
    return WaitingJob(job.id, job.seq, job.priority, job.position, job.position, order)


def _renumbered_event(tables: Tables, queue: str, changed: int, now: datetime) -> EventRecord:
    return EventRecord(
        id=next(tables.event_ids),
        at=now,
        job_id=None,
        run_id=None,
        kind=EventKind.RENUMBERED,
        token=0,
        reason=None,
        detail=str(changed),
        queue=queue,
    )

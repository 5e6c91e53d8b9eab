"""How the model store edits and moves jobs that wait, and makes positions even."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from outlast.core.decide import Change
from outlast.core.event import EventKind, EventRecord
from outlast.core.job import Job
from outlast.core.limits import MAX_PAYLOAD, MAX_PRIORITY, MIN_PRIORITY
from outlast.core.ordering import renumber_positions, sort_key
from outlast.core.position import JobEdit, PositionedJob, move_job
from outlast.core.state import WAITING
from outlast.core.sync_coroutine import run_without_waiting
from outlast.testing.model.tables import Tables
from outlast.testing.model_json import is_json


def may_change(tables: Tables, job: Job, change: Change, now: datetime) -> bool:
    """Whether its edit can be kept, and the target of its place is beside it."""
    if change.edit is not None and not _can_be_kept(job, change.edit, now):
        return False
    if change.place is None or change.place.target is None:
        return True
    return any(other.id == change.place.target != job.id for other in _lane(tables, job))


def edit(tables: Tables, job: Job, change: Change, now: datetime) -> None:
    """Write what the change's edit gives."""
    assert change.edit is not None
    asked = change.edit
    position = job.position
    if asked.priority not in (None, job.priority):
        position = tables.new_position(job.queue, asked.priority)
    tables.jobs[job.id] = replace(
        job,
        state=change.move.to,
        params=job.params if asked.params is None else asked.params,
        priority=job.priority if asked.priority is None else asked.priority,
        position=position,
        available_at=_due(asked, now) or job.available_at,
    )


def move(tables: Tables, job: Job, change: Change) -> None:
    """Bring the job to the change's place."""
    assert change.place is not None
    target = change.place.target
    run_without_waiting(
        move_job(
            ModelLane(tables, job),
            partial(_write, tables),
            change.place.where,
            moved=job.seq,
            target=None if target is None else tables.jobs[target].seq,
            gap=tables.queue(job.queue).gap,
        )
    )


def renumber(tables: Tables, name: str, now: datetime) -> int:
    """Make the positions of a queue even; how many changed."""
    queue = tables.queue(name)
    waiting = [job for job in tables.jobs.values() if job.queue == name and job.state in WAITING]
    changed: dict[int, int] = {}
    for priority in {job.priority for job in waiting}:
        lane = sorted((job for job in waiting if job.priority == priority), key=sort_key)
        even = renumber_positions([job.position for job in lane], queue.ordering, queue.gap)
        pairs = zip(lane, even, strict=True)
        changed |= {job.seq: position for job, position in pairs if job.position != position}
    if changed:
        run_without_waiting(_write(tables, changed))
        tables.removed.append(_told(tables, name, len(changed), now))
    return len(changed)


class ModelLane:
    """The waiting jobs of one queue and priority, sorted anew for every question."""

    def __init__(self, tables: Tables, job: Job) -> None:
        self._tables = tables
        self._job = job

    async def position(self, seq: int) -> int:
        return self._position(seq)

    async def ends(self, *, without: int) -> tuple[int | None, int | None]:
        found = [job.position for job in self._jobs(without) if job.position]
        return min(found, default=None), max(found, default=None)

    async def before(self, seq: int | None, number: int, *, without: int) -> list[PositionedJob]:
        return self._beside(seq, without)[0][::-1][:number]

    async def after(self, seq: int, number: int, *, without: int) -> list[PositionedJob]:
        return self._beside(seq, without)[1][:number]

    async def unplaced(self, last: int, *, without: int) -> list[int]:
        line = [job.seq for job in self._jobs(without) if not job.position]
        return line[: line.index(last) + 1]

    def _beside(
        self, seq: int | None, without: int
    ) -> tuple[list[PositionedJob], list[PositionedJob]]:
        """Those of one sign before that job, and those behind it; None stands for 0."""
        sign = -1 if seq is None else self._position(seq)
        jobs = [job for job in self._jobs(without) if job.position * sign > 0]
        spots = [PositionedJob(job.seq, job.position) for job in jobs]
        at = [spot.seq for spot in spots].index(seq) if seq is not None else len(spots)
        return spots[:at], spots[at + 1 :]

    def _position(self, seq: int) -> int:
        return next(job.position for job in self._jobs() if job.seq == seq)

    def _jobs(self, without: int = 0) -> Sequence[Job]:
        jobs = (job for job in _lane(self._tables, self._job) if job.seq != without)
        return sorted(jobs, key=sort_key)


def _lane(tables: Tables, like: Job) -> list[Job]:
    return [
        job
        for job in tables.jobs.values()
        if job.state in WAITING and (job.queue, job.priority) == (like.queue, like.priority)
    ]


async def _write(tables: Tables, places: Mapping[int, int]) -> None:
    for job in list(tables.jobs.values()):
        if job.seq in places:
            tables.jobs[job.id] = replace(job, position=places[job.seq])


def _can_be_kept(job: Job, asked: JobEdit, now: datetime) -> bool:
    try:
        _due(asked, now)
    except OverflowError:
        return False
    is_frozen = asked.params is not None and job.token > 0
    is_ours = asked.params is None or is_json(asked.params, MAX_PAYLOAD)
    return not is_frozen and is_ours and MIN_PRIORITY <= (asked.priority or 0) <= MAX_PRIORITY


def _due(asked: JobEdit, now: datetime) -> datetime | None:
    return asked.at if asked.delay is None else now + asked.delay


def _told(tables: Tables, queue: str, changed: int, now: datetime) -> EventRecord:
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

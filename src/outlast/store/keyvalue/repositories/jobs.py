"""Job repository: a record is never written without its index entries."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from outlast.core.delivery import Delivery
from outlast.core.event import EventKind
from outlast.core.ids import JobId, RunId
from outlast.core.job import Job
from outlast.core.state import RunStatus, State
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import DamagedValue, Key, KeyRange, Value
from outlast.store.keyvalue.repositories import bodies, event_numbers, runs
from outlast.store.keyvalue.repositories.job_codec import (
    JobRecord,
    from_value,
    indexes,
    params_of,
    to_value,
)
from outlast.store.keyvalue.unit_of_work import PendingIntent, ReadConflict, UnitOfWork

ALL = 1_000_000


async def load(unit: UnitOfWork, job_id: str) -> JobRecord | None:
    """Return the record of a job, or None."""
    [record] = await load_many(unit, [job_id])
    return record


async def load_many(unit: UnitOfWork, job_ids: Sequence[str]) -> list[JobRecord | None]:
    """Return the records of jobs, in order; None for those that do not exist or are damaged."""
    pointers = [key_layout.pointer(job_id) for job_id in job_ids]
    guesses = [sort for job_id in job_ids if (sort := unit.seen.at(job_id)) is not None]
    await unit.fetch([*pointers, *(Key(key_layout.JOB, sort) for sort in guesses)])
    places = [await unit.get(pointer) for pointer in pointers]
    sorts = [_sort_in(place) for place in places]
    await unit.fetch([Key(key_layout.JOB, sort) for sort in sorts if sort is not None])
    found = zip(pointers, sorts, strict=True)
    return [None if sort is None else await _behind(unit, pointer, sort) for pointer, sort in found]


def _sort_in(pointer: Value | None) -> str | None:
    """Return the sort key that a pointer names; None if it is missing or damaged."""
    return None if pointer is None or isinstance(pointer, DamagedValue) else str(pointer["sort"])


async def load_at(unit: UnitOfWork, sort: str) -> JobRecord | None:
    """Return the job at an index entry's location; None if it has moved or is damaged."""
    value = await unit.get(Key(key_layout.JOB, sort))
    return None if value is None else await _at(unit, sort)


async def fetch_whole(unit: UnitOfWork, sorts: Sequence[str]) -> None:
    """Read records and their params, each in one request, for `load_at` and `whole_jobs`."""
    keys = [Key(key_layout.JOB, sort) for sort in sorts]
    await unit.fetch(keys)
    values = [await unit.get(key) for key in keys]
    sound = [value for value in values if not isinstance(value, DamagedValue | None)]
    params = [bodies.text_of(value, "payload") for value in sound]
    await unit.fetch([each.key for each in params if isinstance(each, bodies.BodyReference)])


async def whole_jobs(unit: UnitOfWork, records: Sequence[JobRecord | None]) -> list[Job]:
    """Return the jobs of the records that exist, each with its whole params, in one request."""
    jobs = [record.job for record in records if record is not None]
    whole = await bodies.read(unit, [(job.params, key_layout.job_key(job)) for job in jobs])
    return [replace(job, params=whole(job.params) or bodies.LOST) for job in jobs]


async def damage(unit: UnitOfWork, job_id: str) -> DamagedValue | None:
    """Return the damaged record, or pointer, of a job; None if it is sound or missing."""
    pointer = await unit.get(key_layout.pointer(job_id))
    sort = _sort_in(pointer)
    value = pointer if sort is None else await unit.get(Key(key_layout.JOB, sort))
    return value if isinstance(value, DamagedValue) else None


async def _behind(unit: UnitOfWork, pointer: Key, sort: str) -> JobRecord | None:
    if await unit.get(Key(key_layout.JOB, sort)) is not None:
        return await _at(unit, sort)
    # Either the job moved between the two reads, or its record alone was deleted manually. In the
    # second case the record is missing while the pointer stays unchanged.
    [stored] = await unit.engine.get([Key(key_layout.JOB, sort)])
    if stored is None and await unit.is_unchanged([pointer]):
        return None
    raise ReadConflict


async def _at(unit: UnitOfWork, sort: str) -> JobRecord | None:
    value = await unit.get(Key(key_layout.JOB, sort))
    assert value is not None
    if isinstance(value, DamagedValue):
        return None
    record = from_value(value)
    unit.seen.note(record.job.id, sort)
    if record.pending is not None:
        await _require_finished(unit, Key(key_layout.PENDING, record.pending))
    return await _rebuild_detached(unit, record) if record.is_detached else record


async def _require_finished(unit: UnitOfWork, intent: Key) -> None:
    """Raise PendingIntent while the intent exists; the job's mark may outlive it."""
    if intent in unit.tolerated:
        return
    if (await unit.engine.get([intent]))[0] is not None:
        raise PendingIntent(intent)


def save(unit: UnitOfWork, old: JobRecord | None, new: JobRecord | None) -> None:
    """Write the job with the index entries that changed; None as `new` deletes it."""
    before = {} if old is None else indexes(old)
    after = {} if new is None else indexes(new)
    for key in before.keys() - after.keys():
        unit.delete(key)
    for key in sorted(after):
        if key not in before or before[key] != after[key]:
            unit.put(key, after[key])
    _save_record(unit, old, new)
    _save_bodies(unit, old, new)
    if old is not None and old.is_open and not (new and new.is_open):
        _end_name(unit, old.job)


def _save_record(unit: UnitOfWork, old: JobRecord | None, new: JobRecord | None) -> None:
    if old is not None and (
        new is None or key_layout.job_key(old.job) != key_layout.job_key(new.job)
    ):
        unit.delete(key_layout.job_key(old.job))
    if new is not None:
        unit.put(key_layout.job_key(new.job), to_value(new))
        unit.seen.note(new.job.id, key_layout.job_sort(new.job))


def _save_bodies(unit: UnitOfWork, old: JobRecord | None, new: JobRecord | None) -> None:
    """Write the bodies of new texts, and delete those of replaced params and of a deleted job."""
    if old is not None and (new is None or params_of(old) != params_of(new)):
        bodies.delete(unit, old.job.id, old.job.params)
    if new is None:
        if old is not None:
            bodies.delete(unit, old.job.id, old.last_error)
        return
    bodies.save(unit, new.job.id, bodies.NO_RUN, new.job.params)
    bodies.save(unit, new.job.id, new.job.token, new.last_error)


def _end_name(unit: UnitOfWork, job: Job) -> None:
    if job.delivery is Delivery.ONCE:
        unit.delete(Key(key_layout.ONCE, job.name))


async def append_event(
    unit: UnitOfWork,
    kind: EventKind,
    *,
    at: datetime,
    job_id: JobId | None = None,
    run_id: RunId | None = None,
    token: int = 0,
    reason: str | None = None,
    detail: str | None = None,
    queue: str | None = None,
) -> int:
    """Append an event in this unit of work, and return its number."""
    number = await event_numbers.take(unit, job_id)
    event = {
        "id": number,
        "at": key_layout.time_key(at),
        "job_id": job_id,
        "run_id": run_id,
        "kind": kind.value,
        "token": token,
        "reason": reason,
        "detail": detail,
        "queue": queue,
    }
    told = {name: value for name, value in event.items() if value is not None}
    unit.put(key_layout.stream_key(number), told)
    unit.put(key_layout.event_key(job_id, number), {"id": number})
    return number


async def _rebuild_detached(unit: UnitOfWork, record: JobRecord) -> JobRecord:
    """Return a detached job with the counters that its runs and chain prove."""
    closed = await runs.closed(unit, record.job)
    before = await _chained_from(unit, record.job)
    ended = Counter(run.status for run in closed)
    last = closed[-1] if closed else None
    failures, losses = (before.failures, before.losses) if before else (0, 0)
    job = replace(
        record.job,
        state=State.RUNNING,
        reason=None,
        priority=0,
        position=0,
        token=last.token if last else 0,
        failures=failures + ended[RunStatus.FAILED] + ended[RunStatus.LOST],
        losses=losses + ended[RunStatus.LOST],
        cancel_requested=False,
        holder=last.holder if last else None,
        boot_id=last.boot_id if last else None,
        started_at=closed[0].started_at if closed else None,
        finished_at=None,
        progress=None,
    )
    return replace(record, job=job, lease=None, lease_until=None, run_id=None, run_started_at=None)


async def _chained_from(unit: UnitOfWork, job: Job) -> Job | None:
    """Return the job whose end wrote this one as its successor; None after a manual retry."""
    if job.retry_of is None:
        return None
    told = await unit.range(key_layout.of_job(key_layout.EVENT, job.retry_of), limit=ALL)
    found = await unit.engine.get([key_layout.stream_key(each.value["id"]) for each in told])
    if not any(e and not e.damage and e.value["kind"] == EventKind.CHAINED for e in found):
        return None
    before = await load(unit, job.retry_of)
    return None if before is None else before.job


async def all_jobs(unit: UnitOfWork, *, after: int = 0, limit: int = ALL) -> list[JobRecord]:
    """Return the next jobs by number, above `after`."""
    span = KeyRange(key_layout.SEQ, key_layout.number(after + 1))
    entries = await unit.range(span, limit=limit)
    found = await load_many(unit, [entry.value["id"] for entry in entries])
    return [record for record in found if record is not None]

"""Run and event records."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from outlast.core.decide import Change
from outlast.core.event import EventKind, EventRecord
from outlast.core.ids import JobId, RunId
from outlast.core.job import Job
from outlast.core.run import RunRecord
from outlast.core.state import RunStatus
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem, Value
from outlast.store.keyvalue.repositories import bodies
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import ReadConflict, UnitOfWork

ALL = 1_000_000
NEARBY = 4
"""Records per job that one range read may return, some of them of other jobs."""

_TEXTS = ("error", "result")
"""Fields of a run that may be in bodies."""


def _closing(record: JobRecord, change: Change, at: datetime) -> dict[str, Any]:
    """Return the fields of the run that the change closes, without its error and result."""
    assert change.move.run is not None
    return {
        "run_id": record.run_id,
        "job_id": record.job.id,
        "token": record.job.token,
        "status": change.move.run.value,
        "reason": change.reason,
        "holder": record.job.holder,
        "boot_id": record.job.boot_id,
        "started_at": key_layout.time_key(record.run_started_at or at),
        "finished_at": key_layout.time_key(at),
        "exit_code": change.exit_code,
        "log_path": change.log_path,
        "progress": record.job.progress,
    }


def save_texts(
    unit: UnitOfWork, job_id: str, token: int, error: str | None, result: str | None
) -> dict[str, Any]:
    """Write the bodies of a run's long texts; return the fields that hold or refer to them."""
    held: dict[str, Any] = {}
    for name, text in zip(_TEXTS, (error, result), strict=True):
        bodies.save(unit, job_id, token, text)
        held |= bodies.fields(name, bodies.refer(job_id, token, text))
    return held


async def close(unit: UnitOfWork, record: JobRecord, change: Change, at: datetime) -> str | None:
    """Write the closed run with its artifacts and bodies; return its error as the job keeps it."""
    job_id, token = record.job.id, record.job.token
    value = _closing(record, change, at)
    value |= save_texts(unit, job_id, token, change.error, change.result)
    unit.put(key_layout.run_key(job_id, token), {n: v for n, v in value.items() if v is not None})
    if change.artifacts:
        await append(unit, job_id, token, change.artifacts)
    return bodies.refer(job_id, token, change.error)


def keys_of(run: StoredItem) -> list[Key]:
    """Return the keys of a closed run and of its bodies."""
    texts = [bodies.text_of(run.value, name) for name in _TEXTS]
    return [run.key, *(each.key for each in texts if isinstance(each, bodies.BodyReference))]


async def whole(unit: UnitOfWork, runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs with their whole texts, in one request; not their params."""
    held = [(t, key_layout.run_key(r.job_id, r.token)) for r in runs for t in (r.error, r.result)]
    text = await bodies.read(unit, held)
    return [replace(run, error=text(run.error), result=text(run.result)) for run in runs]


async def append(unit: UnitOfWork, job_id: str, token: int, artifacts: Sequence[str]) -> None:
    """Append artifacts to a run."""
    key = key_layout.artifacts_key(job_id, token)
    there = await unit.get(key)
    unit.put(key, {"artifacts": [*(there["artifacts"] if there else ()), *artifacts]})


async def closed(unit: UnitOfWork, job: Job) -> list[RunRecord]:
    """Return the closed runs of a job, the first one first."""
    [found] = await closed_of(unit, [job])
    return found


async def ended(unit: UnitOfWork, job: Job, token: int) -> RunRecord | None:
    """Return the closed run of a job under that token, without its artifacts."""
    value = await unit.get(key_layout.run_key(job.id, token))
    return None if value is None else to_run(value, job, ())


async def closed_of(unit: UnitOfWork, jobs: Sequence[Job]) -> list[list[RunRecord]]:
    """Return the closed runs of several jobs, in few requests."""
    ids = [job.id for job in jobs]
    records = await of_jobs(unit, key_layout.RUN, ids)
    left = [_left(found) for found in await of_jobs(unit, key_layout.ARTIFACTS, ids)]
    return [
        [to_run(each.value, job, own.get(each.value["token"], ())) for each in found]
        for job, found, own in zip(jobs, records, left, strict=True)
    ]


async def of_jobs(unit: UnitOfWork, part: str, job_ids: Sequence[str]) -> list[list[StoredItem]]:
    """Return what a part holds of each job, in one range read where the jobs lie close.

    Ids rise with time, so jobs added one after the other lie together.
    """
    if not job_ids:
        return []
    spans = [key_layout.of_job(part, job_id) for job_id in job_ids]
    between = KeyRange(part, min(s.start for s in spans), max(s.end for s in spans if s.end))
    most = NEARBY * len(job_ids) if len(job_ids) > 1 else ALL
    found = await unit.range(between, limit=most + 1)
    if len(found) > most:
        return await unit.ranges(spans)
    by_job: dict[str, list[StoredItem]] = {}
    for entry in found:
        by_job.setdefault(entry.key.sort.rpartition("#")[0], []).append(entry)
    return [by_job.get(job_id, []) for job_id in job_ids]


async def all_of(unit: UnitOfWork, record: JobRecord) -> list[RunRecord]:
    """Return the closed runs, and the open one."""
    done = await closed(unit, record.job)
    if not record.is_open:
        return done
    if done and done[-1].token == record.job.token:
        raise ReadConflict  # closed since the job was read
    [left] = await of_jobs(unit, key_layout.ARTIFACTS, [record.job.id])
    return [*done, _opened(record, _left(left).get(record.job.token, ()))]


def _left(found: Sequence[StoredItem]) -> dict[int, tuple[str, ...]]:
    """Return artifacts by token."""
    return {
        int(each.key.sort.rpartition("#")[2], 16) - (1 << 63): tuple(each.value["artifacts"])
        for each in found
    }


def to_run(value: Value, job: Job | None, artifacts: tuple[str, ...]) -> RunRecord:
    """Return a closed run; its params are the job's, fixed since the first claim."""
    return RunRecord(
        run_id=RunId(value["run_id"]),
        job_id=JobId(value["job_id"]),
        token=value["token"],
        status=RunStatus(value["status"]),
        reason=value.get("reason"),
        holder=value["holder"],
        boot_id=value["boot_id"],
        started_at=key_layout.from_time_key(value["started_at"]),
        finished_at=key_layout.from_time_key(value["finished_at"]),
        error=bodies.text_of(value, "error"),
        result=bodies.text_of(value, "result"),
        exit_code=value.get("exit_code"),
        log_path=value.get("log_path"),
        artifacts=artifacts,
        params_snapshot="null" if job is None else job.params,
        template_id=None if job is None else job.template_id,
        template_at=None if job is None else job.template_at,
        progress=value.get("progress"),
    )


def _opened(record: JobRecord, artifacts: tuple[str, ...]) -> RunRecord:
    job = record.job
    assert record.run_id is not None
    assert record.run_started_at is not None
    return RunRecord(
        run_id=record.run_id,
        job_id=job.id,
        token=job.token,
        status=RunStatus.RUNNING,
        reason=None,
        holder=job.holder or "?",
        boot_id=job.boot_id or "?",
        started_at=record.run_started_at,
        finished_at=None,
        error=None,
        result=None,
        exit_code=None,
        log_path=None,
        artifacts=artifacts,
        params_snapshot=job.params,
        template_id=job.template_id,
        template_at=job.template_at,
        progress=job.progress,
    )


def event(value: Value) -> EventRecord:
    """Return the event of a stored value."""
    return EventRecord(
        id=value["id"],
        at=key_layout.from_time_key(value["at"]),
        job_id=value.get("job_id"),
        run_id=value.get("run_id"),
        kind=EventKind(value["kind"]),
        token=value["token"],
        reason=value.get("reason"),
        detail=value.get("detail"),
        queue=value.get("queue"),
    )

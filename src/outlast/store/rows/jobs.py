"""Mappers between rows and jobs, runs, workers, events, documents and groups."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from outlast.clock import from_micros, to_micros
from outlast.core.decide import Change
from outlast.core.delivery import Delivery
from outlast.core.document import Document
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventKind, EventRecord
from outlast.core.group import ClosePolicy, Group, GroupMode, OnMemberFailure
from outlast.core.ids import JobId, RunId
from outlast.core.job import Job, NewJob
from outlast.core.metadata import check_metadata
from outlast.core.run import Claim, RunRecord
from outlast.core.state import RunStatus, State
from outlast.core.worker import Topology, WorkerInfo, WorkerRecord

Row = tuple[Any, ...]
LAST = to_micros(datetime.max.replace(tzinfo=UTC))

_encode = json.JSONEncoder(
    separators=(",", ":"), check_circular=False, ensure_ascii=False, allow_nan=False
).encode


def to_json_param(value: Any) -> str:
    """Return a value as JSON for a statement; raises ValueError for text with NUL characters.

    SQLite would silently end the text there. A lone surrogate is refused when it is bound.
    """
    text = _encode(value)
    if "\\u0000" in text and _has_nul(value):
        raise ValueError("NUL characters cannot be stored; remove them")
    return text


def insert_shape(job: NewJob) -> tuple[Any, ...]:
    """Return the fields that jobs must share to be inserted by one statement."""
    return (
        job.type, job.queue, job.priority, job.name, job.delivery, job.max_attempts, job.delay,
        job.at, job.start_within, job.group_id, job.member, job.template_id, job.template_at,
        job.schedule_id, job.metadata,
    )  # fmt: skip


def new_job(job: NewJob, now: int) -> dict[str, Any]:
    """Return the parameters that `add` binds for a job and for all of its shape.

    Raises ValueError if it is due, or must start, after the year 9999, or has no sound metadata.
    """
    if job.metadata is not None:
        check_metadata(job.metadata)
    slot_at = None if job.slot is None else to_micros(job.slot.at)
    due = _due(job, slot_at, now)
    counted_from = due if slot_at is None else slot_at
    within = None if job.start_within is None else job.start_within // MICROSECOND
    if max(due, counted_from + (within or 0)) > LAST:
        raise ValueError("it is due, or must start, after the year 9999")
    return {
        "type": job.type,
        "name": job.name,
        "queue": job.queue,
        "delivery": job.delivery,
        "max_attempts": job.max_attempts,
        "now": now,
        "slot_at": slot_at,
        "start_deadline": None if within is None else counted_from + within,
        "group_id": job.group_id,
        "template_id": job.template_id,
        "template_at": None if job.template_at is None else to_micros(job.template_at),
        "schedule_id": job.schedule_id,
        "active_key": job.active_key,
        "metadata": job.metadata,
        "priority": job.priority,
        "state": _first_state(job, is_due=due <= now),
        "available_at": due,
    }


def change_params(change: Change) -> list[Any]:
    """Return a change as the list that `apply` decodes, without trailing None values."""
    move = change.move
    after = change.successor
    row = [
        change.job_id, change.token, move.guard, move.to, move.run, change.result, move.kind,
        change.reason, change.error, change.delay // MICROSECOND or None, change.failures,
        change.losses, move.yields_to_cancel or None, after and after.id,
        after and after.delay // MICROSECOND, change.artifacts or None,
        None if move.guard in ("open", "lapsed") else change.was, change.exit_code,
        change.log_path, change.run_id, change.detail,
    ]  # fmt: skip
    return _trimmed(row)


def claim(row: Sequence[Any]) -> Claim:
    """Return the claim of a row."""
    job_id, token, run_id, kind, params, delivery, failures, losses, most, slot_at, metadata = row
    delivered = _DELIVERIES[delivery]
    if slot_at is None and metadata is None:
        return Claim(job_id, token, run_id, kind, params, delivered, failures, losses, most)
    return Claim(
        job_id,
        token,
        run_id,
        kind,
        params,
        delivered,
        failures,
        losses,
        most,
        slot_at=_moment(slot_at),
        metadata=metadata,
    )


LEASE_UNTIL: Final = 30
"""Index of the end of the lease in a job row, which `job` skips."""


def job(row: Row) -> Job:
    """Return the job of a row."""
    (
        seq, job_id, kind, name, params, queue, delivery, most, created_at, slot_at, deadline,
        retry_of, root_id, group_id, template_id, template_at, schedule_id, state, reason,
        priority, position, available_at, token, failures, losses, cancel, holder, boot_id,
        started_at, finished_at, _, progress, active_key, metadata,
    ) = row  # fmt: skip
    return Job(
        id=JobId(job_id),
        seq=seq,
        type=kind,
        name=name,
        params=params,
        queue=queue,
        delivery=Delivery(delivery),
        priority=priority,
        position=position,
        max_attempts=most,
        created_at=from_micros(created_at),
        available_at=from_micros(available_at),
        slot_at=_moment(slot_at),
        start_deadline=_moment(deadline),
        retry_of=retry_of,
        root_id=root_id,
        group_id=group_id,
        template_id=template_id,
        template_at=None if template_at is None else from_micros(template_at),
        schedule_id=schedule_id,
        state=State(state),
        reason=reason,
        token=token,
        failures=failures,
        losses=losses,
        cancel_requested=bool(cancel),
        holder=holder,
        boot_id=boot_id,
        started_at=_moment(started_at),
        finished_at=_moment(finished_at),
        progress=progress,
        active_key=active_key,
        metadata=metadata,
    )


def run_record(row: Row) -> RunRecord:
    """Return the run of a row."""
    (
        run_id, job_id, token, status, reason, holder, boot_id, started_at, finished_at, error,
        result, exit_code, log_path, artifacts, params, template_id, template_at, progress,
    ) = row  # fmt: skip
    return RunRecord(
        run_id=RunId(run_id),
        job_id=JobId(job_id),
        token=token,
        status=RunStatus(status),
        reason=reason,
        holder=holder,
        boot_id=boot_id,
        started_at=from_micros(started_at),
        finished_at=_moment(finished_at),
        error=error,
        result=result,
        exit_code=exit_code,
        log_path=log_path,
        artifacts=tuple(json.loads(artifacts)),
        params_snapshot=params,
        template_id=template_id,
        template_at=None if template_at is None else from_micros(template_at),
        progress=progress,
    )


def worker_info(worker: WorkerInfo) -> str:
    """Return the stored JSON of everything but a worker's identity."""
    kept = [worker.host, worker.pid, worker.queues, worker.types, worker.concurrency]
    is_stopping = False  # a heartbeat sets it
    more = [worker.processes, worker.topology, worker.version, is_stopping]
    return to_json_param([*kept, *more, worker.app, worker.schedules])


def worker(row: Row) -> WorkerRecord:
    """Return the worker of a row."""
    instance_id, boot_id, info, started_at, seen_at, stopped_at, is_alive = row
    host, pid, queues, types, concurrency, *others = json.loads(info)
    processes, topology, version, is_stopping, app, schedules = others
    return WorkerRecord(
        instance_id=instance_id,
        boot_id=boot_id,
        host=host,
        pid=pid,
        queues=tuple(queues),
        types=tuple(types),
        concurrency=concurrency,
        processes=processes,
        topology=Topology(topology),
        version=version,
        app=app,
        schedules=tuple(schedules),
        started_at=from_micros(started_at),
        seen_at=from_micros(seen_at),
        stopped_at=_moment(stopped_at),
        is_alive=bool(is_alive),
        is_stopping=is_stopping,
    )


def event(row: Row) -> EventRecord:
    """Return the event of a row."""
    number, at, job_id, run_id, kind, token, reason, detail, queue = row
    return EventRecord(
        id=number,
        at=from_micros(at),
        job_id=job_id,
        run_id=run_id,
        kind=EventKind(kind),
        token=token,
        reason=reason,
        detail=detail,
        queue=queue,
    )


def document(row: Row) -> Document:
    """Return the document of a row."""
    kind, key, value, version, created_at, updated_at = row
    return Document(
        kind=kind,
        key=key,
        value=value,
        version=version,
        created_at=from_micros(created_at),
        updated_at=from_micros(updated_at),
    )


def group(row: Row) -> Group:
    """Return the group of a row, with the counts of its members."""
    (
        group_id, seq, name, mode, on_failure, total, created_at, sealed_at, closing, reason,
        counts,
    ) = row  # fmt: skip
    return Group(
        id=group_id,
        seq=seq,
        name=name,
        mode=GroupMode(mode),
        on_failure=OnMemberFailure(on_failure),
        total=total,
        created_at=from_micros(created_at),
        sealed_at=_moment(sealed_at),
        closing=None if closing is None else ClosePolicy(closing),
        reason=reason,
        counts={State(state): number for state, number in json.loads(counts).items()},
    )


def orphan_run(row: Row) -> dict[str, Any]:
    """Return a run whose job is gone, as the JSON object of its event."""
    names = (
        "job", "token", "run_id", "status", "reason", "holder", "boot_id", "started_at",
        "finished_at", "error", "result", "exit_code", "log_path", "artifacts",
    )  # fmt: skip
    copy = dict(zip(names, row, strict=True))
    at = {name: from_micros(copy[name]).isoformat() for name in ("started_at", "finished_at")}
    return copy | at


def require_storable(values: Iterable[Any]) -> None:
    """Raise ValueError if a text has a NUL character, at which SQLite would end it."""
    for value in values:
        if isinstance(value, str) and "\0" in value:
            raise ValueError("NUL characters cannot be stored; remove them")


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    return isinstance(value, list | tuple) and any(_has_nul(item) for item in value)


def _first_state(job: NewJob, *, is_due: bool) -> State:
    if job.member:
        return State.BLOCKED
    return State.QUEUED if is_due else State.SCHEDULED


def _due(job: NewJob, slot_at: int | None, now: int) -> int:
    if job.at is not None:
        return to_micros(job.at)
    if job.delay is not None:
        return now + job.delay // MICROSECOND
    return now if slot_at is None else max(now, slot_at)


def _trimmed(row: list[Any]) -> list[Any]:
    while row[-1] is None:
        row.pop()
    return row


def _moment(microseconds: int | None) -> Any:
    return None if microseconds is None else from_micros(microseconds)


_DELIVERIES = {str(delivery): delivery for delivery in Delivery}

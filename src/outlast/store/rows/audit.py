"""Mappers from raw rows to job audits and dangling records."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from outlast.clock import from_micros
from outlast.core.audit.model import (
    AuditedEvent,
    AuditedReservation,
    ClosedRun,
    DanglingKind,
    DanglingRecord,
    JobAudit,
    Predecessor,
    StateRow,
    StateTable,
)
from outlast.core.ids import JobId, RunId
from outlast.core.metadata import is_sound, labels_of
from outlast.core.state import State
from outlast.store.rows.jobs import Row

DANGLING_RECORD_STATEMENTS: Final = (
    "audit.orphans",
    "audit.keys",
    "audit.slots",
    "audit.doubles",
    "audit.turns",
)
"""Statements that find dangling records; their columns are kind, rows, subject and job id."""


def job_audit(row: Row) -> JobAudit:
    """Return the job audit of a row."""
    (seq, job_id, delivery, queue, created_at, params_are_json), row = row[:6], row[6:]
    (waiting, running, end), row = (row[:6], row[6:13], row[13:20]), row[20:]
    (root_id, retry_of), before, row = row[:2], row[2:7], row[7:]
    successors, runs, events, reservations, is_member, group_id, active_key, key_holder, *labels = (
        row
    )
    metadata, stored = labels[0], set(json.loads(labels[1]))
    demanded = labels_of(metadata) if is_sound(metadata) else frozenset()
    return JobAudit(
        id=JobId(job_id),
        seq=seq,
        delivery=delivery,
        queue=queue,
        created_at=_moment(created_at),
        params_are_json=bool(params_are_json),
        places=tuple(_places(waiting, running, end)),
        runs=_each(_run, runs),
        events=_each(_told, events),
        root_id=root_id,
        before=None if retry_of is None else _before(*before),
        successors=tuple(json.loads(successors)),
        reservations=_each(_held, reservations),
        is_member=bool(is_member),
        group_id=group_id,
        active_key=active_key,
        key_holder=key_holder,
        metadata_is_sound=is_sound(metadata),
        missing_labels=tuple(sorted(demanded - stored)),
        surplus_labels=tuple(sorted(stored - demanded)),
    )


def dangling_record(row: Row) -> DanglingRecord:
    """Return the dangling record of a row."""
    kind, rows, about, job_id = row
    return DanglingRecord(
        kind=DanglingKind(kind), rows=tuple(json.loads(rows)), about=str(about), job_id=job_id
    )


def _places(waiting: Row, running: Row, end: Row) -> Iterator[StateRow]:
    if waiting[0] is not None:
        _, state, *counts, alike = waiting
        yield _place(StateTable.WAITING, state, counts, alike)
    if running[0] is not None:
        _, run_id, *counts, alike, has_holder = running
        place = _place(StateTable.OPEN, State.RUNNING, counts, alike)
        yield replace(place, run_id=RunId(run_id), has_holder=bool(has_holder))
    if end[0] is not None:
        _, state, *counts, at, alike = end
        yield replace(_place(StateTable.END, state, counts, alike), at=_moment(at))


def _place(where: StateTable, state: str, counts: Sequence[int], alike: int) -> StateRow:
    token, failures, losses = counts
    return StateRow(
        where=where,
        state=state,
        token=token,
        failures=failures,
        losses=losses,
        is_like_its_job=bool(alike),
    )


def _before(
    job_id: str | None, root_id: str | None, failures: int | None, losses: int | None, chained: int
) -> Predecessor:
    return Predecessor(
        id=None if job_id is None else JobId(job_id),
        root_id=None if root_id is None else JobId(root_id),
        failures=failures,
        losses=losses,
        chained=bool(chained),
    )


def _each(make: Callable[..., Any], rows: str) -> tuple[Any, ...]:
    """Decode rows and sort them by their first column: JSON aggregates have no order."""
    return tuple(make(*row) for row in sorted(json.loads(rows), key=lambda row: row[0]))


def _run(
    token: int, run_id: str, status: str, finished_at: Any, has_result: int, has_holder: int
) -> ClosedRun:
    return ClosedRun(
        token=token,
        run_id=RunId(run_id),
        status=status,
        finished_at=_moment(finished_at),
        has_result=bool(has_result),
        has_holder=bool(has_holder),
    )


def _told(number: int, kind: str, token: int, at: Any) -> AuditedEvent:
    return AuditedEvent(id=number, kind=kind, token=token, at=_moment(at))


def _held(reservation_id: str, queue: str, status: str) -> AuditedReservation:
    return AuditedReservation(id=reservation_id, queue=queue, status=status)


def _moment(value: Any) -> datetime | None:
    """Return None for a broken value: a column of a damaged store may hold anything."""
    try:
        return from_micros(value)
    except (TypeError, OverflowError):
        return None

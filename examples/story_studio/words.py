"""Convert Outlast's records to the tables of S1; pure functions, one per table."""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, assert_never

from outlast import Job, Schedule, State, Template
from outlast.core.delivery import Delivery
from outlast.core.reservation import Reservation, ReservationStatus
from outlast.core.run import RunRecord
from outlast.core.state import RunStatus

CRASH_RECOVERY: Final = "Scheduler crash recovery"
"""The error of an interrupted run, for every cause."""


class JobStatus(StrEnum):
    """Status of a job in S1; the outcome is in its JobRun."""

    QUEUED = "QUEUED"  # waits, for its turn or for its time
    RUNNING = "RUNNING"  # was dispatched; `finished_at` says whether that is over
    CANCELLED = "CANCELLED"  # cancelled by a user, or skipped before it ran


class JobRunStatus(StrEnum):
    """Outcome of a run; an open run has no status (S1's "pending")."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


class DirectStatus(StrEnum):
    """Status of the reservation of a direct execution."""

    ACTIVE = "ACTIVE"
    RELEASED = "RELEASED"
    EXPIRED = "EXPIRED"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """S1 2.1, with `worker_id` of 6.1; `permanently_failed` is 4.4's mark."""

    job_id: str
    template_id: str | None
    schedule_id: str | None
    group_id: str | None
    job_type: str
    params: dict[str, Any]
    status: JobStatus
    priority: int
    position: int
    retry_of: str | None
    created_at: datetime
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker_id: str | None
    permanently_failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunRow:
    """S1 2.2."""

    run_id: str
    job_id: str
    template_id: str | None
    params_snapshot: dict[str, Any]
    status: JobRunStatus | None
    started_at: datetime
    finished_at: datetime | None
    exit_code: int | None
    error: str | None
    artifacts: list[str]
    log_path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRow:
    """S1 2.5."""

    reservation_id: str
    reserved_at: datetime
    reserved_by: str
    status: DirectStatus
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRow:
    """S1 1.2 names it and leaves its fields to us."""

    template_id: str
    name: str
    job_type: str
    params: dict[str, Any]
    priority: int | None
    max_retries: int | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """S1 2.3."""

    schedule_id: str
    template_id: str | None
    name: str
    cron_expression: str | None
    timezone: str
    enabled: bool
    param_overrides: dict[str, Any] | None
    last_triggered_at: datetime | None
    next_trigger_at: datetime | None
    created_at: datetime


def job_row(job: Job) -> JobRow:
    """The job as S1's table has it; ValueError if it is none of S1's."""
    return JobRow(
        job_id=job.id,
        template_id=job.template_id,
        schedule_id=job.schedule_id,
        group_id=job.group_id,
        job_type=job.type,
        params=json.loads(job.params),
        status=job_status(job),
        priority=job.priority,
        position=job.position,
        retry_of=job.retry_of,
        created_at=job.created_at,
        queued_at=job.queued_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        worker_id=job.holder,
        permanently_failed=job.state is State.DEAD_LETTER,
    )


def job_status(job: Job) -> JobStatus:
    """Only dispatching and cancelling change it; ending does not."""
    if job.delivery is not Delivery.LINKED:
        raise ValueError(f"job {job.id} is delivered {job.delivery}; S1 has words for linked alone")
    match job.state:
        case State.NEW | State.BLOCKED | State.SCHEDULED | State.QUEUED:
            return JobStatus.QUEUED
        case State.RUNNING | State.SUCCEEDED | State.FAILED | State.DEAD_LETTER:
            return JobStatus.RUNNING
        case State.SKIPPED:
            # Without a run it was never dispatched, and S1 5.1 has no RUNNING job without one.
            return JobStatus.RUNNING if job.token else JobStatus.CANCELLED
        case State.CANCELLED:
            return JobStatus.CANCELLED
        case State.RETRY_WAIT:
            raise ValueError(f"job {job.id} waits to be run again, which no job of S1 ever is")
        case _:
            assert_never(job.state)


def run_row(run: RunRecord) -> JobRunRow:
    """The run as S1's table has it; ValueError if no run of S1 can be so."""
    return JobRunRow(
        run_id=run.run_id,
        job_id=run.job_id,
        template_id=run.template_id,
        params_snapshot=json.loads(run.params_snapshot),
        status=run_status(run),
        started_at=run.started_at,
        finished_at=run.finished_at,
        exit_code=run.exit_code,
        error=CRASH_RECOVERY if run.status is RunStatus.LOST else run.error,
        artifacts=list(run.artifacts),
        log_path=run.log_path,
    )


def run_status(run: RunRecord) -> JobRunStatus | None:
    """How the run ended, as S1 says it; None while it has not."""
    match run.status:
        case RunStatus.RUNNING:
            return None
        case RunStatus.SUCCEEDED:
            return JobRunStatus.COMPLETED
        case RunStatus.FAILED | RunStatus.LOST:
            return JobRunStatus.FAILED
        case RunStatus.SKIPPED | RunStatus.CANCELLED:
            return JobRunStatus.SKIPPED
        case RunStatus.RELEASED:
            raise ValueError(f"run {run.run_id} was released, which no run of S1 ever is")
        case _:
            assert_never(run.status)


def reservation_row(reservation: Reservation) -> ReservationRow:
    """The reservation; S1 has one queue, so it does not say which."""
    return ReservationRow(
        reservation_id=reservation.id,
        reserved_at=reservation.reserved_at,
        reserved_by=reservation.reserved_by,
        status=reservation_status(reservation),
        expires_at=reservation.expires_at,
    )


def reservation_status(reservation: Reservation) -> DirectStatus:
    """The same three as ours."""
    match reservation.status:
        case ReservationStatus.ACTIVE:
            return DirectStatus.ACTIVE
        case ReservationStatus.RELEASED:
            return DirectStatus.RELEASED
        case ReservationStatus.EXPIRED:
            return DirectStatus.EXPIRED
        case _:
            assert_never(reservation.status)


def template_row(template: Template) -> TemplateRow:
    """The template with the names S1's other tables use."""
    attempts = template.max_attempts
    return TemplateRow(
        template_id=template.id,
        name=template.name,
        job_type=template.type,
        params=json.loads(template.params),
        priority=template.priority,
        max_retries=None if attempts is None else attempts - 1,
        created_at=template.created_at,
        updated_at=template.updated_at,
    )


def schedule_row(schedule: Schedule, template_id: str | None) -> ScheduleRow:
    """The schedule, and the id of the template that it names."""
    plan = schedule.plan
    return ScheduleRow(
        schedule_id=schedule.id,
        template_id=template_id,
        name=plan.label or plan.name,
        cron_expression=plan.rule.cron,
        timezone=plan.rule.timezone,
        enabled=plan.enabled,
        param_overrides=json.loads(plan.params) or None,
        last_triggered_at=schedule.last_triggered_at,
        next_trigger_at=schedule.next_trigger_at,
        created_at=schedule.created_at,
    )

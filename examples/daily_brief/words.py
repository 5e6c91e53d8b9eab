"""Convert Outlast's records to rows of S0's `job_runs`; pure functions."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, assert_never

from outlast import Job
from outlast.core.delivery import Delivery
from outlast.core.run import UNKNOWN_HOLDER, RunRecord
from outlast.core.state import Loss, RunStatus

STARTUP_RECOVERY: Final = "worker_startup_recovery"
"""The error of a run whose worker died."""


class Status(StrEnum):
    """Status of a run in S0."""

    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED_TIMEOUT = "skipped_timeout"  # stale: past its threshold, or its lease expired


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRunRow:
    """S0 5."""

    id: str
    job_name: str
    scheduled_for: datetime
    started_at: datetime
    finished_at: datetime | None
    status: Status
    worker_instance: str | None
    error_message: str | None


def run_row(job: Job, run: RunRecord) -> JobRunRow:
    """Convert a run to a row; ValueError if S0 has no such run."""
    if job.delivery is not Delivery.ONCE or job.slot_at is None:
        raise ValueError(f"job {job.id} is delivered {job.delivery}; S0 has words for once alone")
    return JobRunRow(
        id=run.run_id,
        job_name=job.name,
        scheduled_for=job.slot_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        status=status(run),
        worker_instance=None if run.holder == UNKNOWN_HOLDER.instance_id else run.holder,
        error_message=error(run),
    )


def status(run: RunRecord) -> Status:
    """Return the status of S0 for a run."""
    match run.status:
        case RunStatus.RUNNING:
            return Status.RUNNING
        case RunStatus.SUCCEEDED | RunStatus.SKIPPED:
            return Status.SUCCESS
        case RunStatus.FAILED | RunStatus.CANCELLED:
            return Status.FAILED
        case RunStatus.LOST:
            return _lost(_loss(run))
        case RunStatus.RELEASED:
            raise ValueError(f"run {run.run_id} was released, which no run of S0 ever is")
        case _:
            assert_never(run.status)


def error(run: RunRecord) -> str | None:
    """Return the error message of S0 for a run, or None."""
    match run.status:
        case RunStatus.RUNNING | RunStatus.SUCCEEDED | RunStatus.SKIPPED | RunStatus.RELEASED:
            return None
        case RunStatus.FAILED:
            return run.error
        case RunStatus.CANCELLED:
            return "cancelled"
        case RunStatus.LOST:
            return _told(_loss(run))
        case _:
            assert_never(run.status)


def _lost(loss: Loss) -> Status:
    match loss:
        case Loss.TIMEOUT | Loss.LEASE_EXPIRED | Loss.SILENT:
            return Status.SKIPPED_TIMEOUT
        case Loss.STARTUP_RECOVERY | Loss.OWNER_DEAD | Loss.SHUTDOWN:
            return Status.FAILED
        case _:
            assert_never(loss)


def _told(loss: Loss) -> str:
    match loss:
        case Loss.STARTUP_RECOVERY | Loss.OWNER_DEAD:
            return STARTUP_RECOVERY
        case Loss.SHUTDOWN:
            return "worker_shutdown"
        case Loss.TIMEOUT | Loss.LEASE_EXPIRED | Loss.SILENT:
            return str(loss)
        case _:
            assert_never(loss)


def _loss(run: RunRecord) -> Loss:
    """Why it was lost; a reason that is none of ours says that its worker is gone."""
    return Loss(run.reason) if run.reason in set(Loss) else Loss.OWNER_DEAD

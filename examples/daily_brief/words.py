"""Our records in S0's words: pure, one row of `job_runs` for each run."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, assert_never

from outlast import Job
from outlast.core.delivery import Delivery
from outlast.core.run import UNKNOWN_HOLDER, RunRecord
from outlast.core.state import Loss, RunStatus

STARTUP_RECOVERY: Final = "worker_startup_recovery"
"""The error of a run whose worker died, whoever found out."""


class Status(StrEnum):
    """What S0 says of a run."""

    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED_TIMEOUT = "skipped_timeout"  # stale: over its threshold, or nobody renewed its lease


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
    """The run as S0's table has it; ValueError if it is none of S0's."""
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
    """How the run stands, in one of S0's four words."""
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
            raise ValueError(f"run {run.run_id} was handed back, which no run of S0 ever is")
        case _:
            assert_never(run.status)


def error(run: RunRecord) -> str | None:
    """What S0 has as its error message."""
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

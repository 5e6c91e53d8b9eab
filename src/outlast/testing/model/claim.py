"""Select jobs for a claim of the model store, and open their runs."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from outlast.core.delivery import Delivery
from outlast.core.ids import RunId
from outlast.core.job import Job
from outlast.core.run import Claim, LeaseHolder, RunRecord
from outlast.core.state import RunStatus, State
from outlast.core.transition import (
    has_missed_start_deadline,
    may_be_prefetched,
    start_run,
    to_claim,
)
from outlast.testing.model.tables import Tables


def choose(
    tables: Tables, jobs: Sequence[Job], *, limit: int, prefetch: int, now: datetime
) -> list[Job]:
    """Return those of the queued `jobs`, given in claim order, that one claim takes."""
    running = [tables.jobs[job_id] for job_id in tables.leases]
    chosen: list[Job] = []
    for job in jobs:
        is_wanted = len(chosen) < limit or may_be_prefetched(job)
        if (
            is_wanted
            and not has_missed_start_deadline(job, now)
            and not _overlaps(job, [*running, *chosen])
        ):
            chosen.append(job)
    return chosen[: limit + prefetch]


def next_due(tables: Tables, queue: str, types: Collection[str], now: datetime) -> timedelta | None:
    """Return how long no job of these becomes due; None if there is none."""
    waits = (State.SCHEDULED, State.RETRY_WAIT)
    due = [
        job.available_at
        for job in tables.jobs.values()
        if job.state in waits
        and job.queue == queue
        and job.type in types
        and job.available_at > now
    ]
    return min(due) - now if due else None


def open_run(tables: Tables, job: Job, run_id: RunId, holder: LeaseHolder, now: datetime) -> Claim:
    """Open the next run of a job under the next token."""
    job = start_run(job, holder, now)
    tables.jobs[job.id] = job
    tables.runs[job.id].append(_run(job, run_id, holder, now))
    return to_claim(job, run_id)


def _overlaps(job: Job, others: Sequence[Job]) -> bool:
    names = [other.name for other in others if other.delivery is Delivery.ONCE]
    return job.delivery is Delivery.ONCE and job.name in names


def _run(job: Job, run_id: RunId, holder: LeaseHolder, now: datetime) -> RunRecord:
    return RunRecord(
        run_id=run_id,
        job_id=job.id,
        token=job.token,
        status=RunStatus.RUNNING,
        reason=None,
        holder=holder.instance_id,
        boot_id=holder.boot_id,
        started_at=now,
        finished_at=None,
        error=None,
        result=None,
        exit_code=None,
        log_path=None,
        artifacts=(),
        params_snapshot=job.params,
        template_id=job.template_id,
        template_at=job.template_at,
    )

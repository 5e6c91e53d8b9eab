"""Recovery reads and orphan removal of the model store."""

import json
from dataclasses import asdict
from datetime import datetime

from outlast.core.delivery import Delivery
from outlast.core.event import EventKind, EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run import RunRecord
from outlast.core.state import RunStatus, State
from outlast.testing.model.tables import Tables


def running_under_other_boots(tables: Tables, besides: str, instance_id: str | None) -> list[Job]:
    """Return jobs that run under other boots, of one instance or of all."""
    running = [tables.jobs[job_id] for job_id in tables.leases]
    others = [job for job in running if job.boot_id != besides]
    return [job for job in others if instance_id is None or job.holder == instance_id]


def detached_jobs(tables: Tables) -> list[Job]:
    """Return jobs in no state."""
    return [job for job in tables.jobs.values() if tables.is_detached(job)]


def missing_successors(tables: Tables) -> list[Job]:
    """Return failed chain jobs without their successor."""
    links = [job for job in tables.jobs.values() if job.delivery is Delivery.LINKED]
    failed = [job for job in links if job.state is State.FAILED]
    return [job for job in failed if job.id not in tables.successors]


def remove_orphans(tables: Tables, now: datetime, limit: int) -> list[EventRecord]:
    """Delete closed runs whose job is gone, and keep a copy of each in an event."""
    gone = [job_id for job_id in tables.runs if job_id not in tables.jobs]
    found = [run for job_id in gone for run in tables.runs[job_id] if _is_closed(run)][:limit]
    return [_remove(tables, run, now) for run in found]


def page(jobs: list[Job], after: int, limit: int) -> list[Job]:
    """Return the next jobs by number."""
    return sorted((job for job in jobs if job.seq > after), key=lambda job: job.seq)[:limit]


def _is_closed(run: RunRecord) -> bool:
    return run.status is not RunStatus.RUNNING


def _remove(tables: Tables, run: RunRecord, now: datetime) -> EventRecord:
    job_id: JobId = run.job_id
    tables.runs[job_id].remove(run)
    event = EventRecord(
        id=next(tables.event_ids),
        at=now,
        job_id=None,
        run_id=run.run_id,
        kind=EventKind.ORPHAN_RUN_REMOVED,
        token=run.token,
        reason=run.status,
        detail=json.dumps(asdict(run), default=str),
    )
    tables.removed.append(event)
    return event


def forget_events_of_no_job(tables: Tables, before: datetime, limit: int) -> None:
    """Delete those of the oldest `limit` events of no job that are older than `before`."""
    oldest, others = tables.removed[:limit], tables.removed[limit:]
    tables.removed = [*(event for event in oldest if event.at >= before), *others]

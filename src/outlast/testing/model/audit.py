"""Audit reads of the model store."""

from collections import Counter

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
from outlast.core.delivery import Delivery
from outlast.core.event import EventKind, EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.limits import is_json
from outlast.core.run import RunRecord
from outlast.core.state import RunStatus, State
from outlast.testing.model.base import ModelOperations
from outlast.testing.model.schedules import is_unslotted
from outlast.testing.model.tables import Tables

ANY_SIZE = 1 << 62


class ModelAuditOperations(ModelOperations):
    """Raw reads of the model store for `verify`."""

    async def job_count(self) -> int:
        """Return the number of jobs."""
        return len(self._tables.jobs)

    async def audit_jobs(self, *, after: int, limit: int) -> list[JobAudit]:
        """Return all that is stored of the next jobs."""
        return audit_jobs(self._tables, after, limit)

    async def dangling_records(self, *, limit: int) -> list[DanglingRecord]:
        """Return up to `limit` records of each kind that belong to nothing."""
        return dangling_records(self._tables, limit)


def audit_jobs(tables: Tables, after: int, limit: int) -> list[JobAudit]:
    """Return the next jobs, with all that is stored of each."""
    later = sorted((job.seq, job) for job in tables.jobs.values() if job.seq > after)
    return [_audit_job(tables, job) for _, job in later[:limit]]


def dangling_records(tables: Tables, limit: int) -> list[DanglingRecord]:
    """Return records that belong to no job, and overlapping runs."""
    found = [
        *_orphans(tables),
        *_logs(tables),
        *_reservations(tables),
        *_keys(tables),
        *_overlaps(tables),
    ]
    found += [_unslotted(job) for job in tables.jobs.values() if is_unslotted(tables, job)]
    return [
        record
        for kind in DanglingKind
        for record in [record for record in found if record.kind is kind][:limit]
    ]


def _audit_job(tables: Tables, job: Job) -> JobAudit:
    after = tables.successors.get(job.id)
    return JobAudit(
        id=job.id,
        seq=job.seq,
        delivery=job.delivery,
        queue=job.queue,
        created_at=job.created_at,
        params_are_json=is_json(job.params, ANY_SIZE),
        places=() if tables.is_detached(job) else (_place(tables, job),),
        runs=tuple(_run(run) for run in tables.runs[job.id] if run.status != RunStatus.RUNNING),
        events=tuple(_audited_event(event) for event in tables.events[job.id]),
        root_id=job.root_id if job.root_id in tables.jobs else None,
        before=_before(tables, job, job.retry_of) if job.retry_of else None,
        successors=() if after is None else (after,),
        reservations=tuple(
            AuditedReservation(id=held.id, queue=held.queue, status=held.status)
            for held in tables.reservations.values()
            if held.job_id == job.id
        ),
        is_member=job.id in tables.members,
        group_id=tables.members.get(job.id),
        active_key=job.active_key,
        key_holder=_key_holder(tables, job.active_key),
        logged=tuple(sorted({token for token, _ in tables.logs.get(job.id, {})})),
    )


def _key_holder(tables: Tables, key: str | None) -> JobId | None:
    holder = None if key is None else tables.jobs.get(tables.active_keys.get(key, JobId("")))
    return None if holder is None else holder.root_id


def _place(tables: Tables, job: Job) -> StateRow:
    where = StateTable.END if job.is_final else StateTable.WAITING
    is_open = tables.is_open(job)
    return StateRow(
        where=StateTable.OPEN if is_open else where,
        state=job.state,
        token=job.token,
        failures=job.failures,
        losses=job.losses,
        at=job.finished_at,
        run_id=tables.runs[job.id][-1].run_id if is_open else None,
    )


def _before(tables: Tables, job: Job, job_id: JobId) -> Predecessor:
    before = tables.jobs.get(job_id)
    if before is None:
        return Predecessor(id=None)
    events = tables.events[before.id]
    return Predecessor(
        id=before.id,
        root_id=before.root_id,
        failures=before.failures if before.is_final else None,
        losses=before.losses if before.is_final else None,
        chained=any((e.kind, e.at) == (EventKind.CHAINED, job.created_at) for e in events),
    )


def _run(run: RunRecord) -> ClosedRun:
    return ClosedRun(
        token=run.token,
        run_id=run.run_id,
        status=run.status,
        finished_at=run.finished_at,
        has_result=run.result is not None,
    )


def _audited_event(event: EventRecord) -> AuditedEvent:
    return AuditedEvent(id=event.id, kind=event.kind, token=event.token, at=event.at)


def _orphans(tables: Tables) -> list[DanglingRecord]:
    gone = [job_id for job_id in tables.runs if job_id not in tables.jobs]
    runs = [run for job_id in gone for run in tables.runs[job_id]]
    return [
        DanglingRecord(kind=DanglingKind.RUN, rows=(f"runs job={run.job_id} token={run.token}",))
        for run in runs
        if run.status is not RunStatus.RUNNING
    ]


def _logs(tables: Tables) -> list[DanglingRecord]:
    gone = [(job_id, log) for job_id, log in tables.logs.items() if job_id not in tables.jobs]
    return [
        DanglingRecord(kind=DanglingKind.LOG, rows=(f"logs job={job_id} token={token}",))
        for job_id, log in gone
        for token, _ in log
    ]


def _reservations(tables: Tables) -> list[DanglingRecord]:
    active = [held for held in tables.reservations.values() if held.is_active]
    return [
        DanglingRecord(
            kind=DanglingKind.RESERVATION, rows=(f"reservations id={held.id}",), about=held.queue
        )
        for held in active
        if held.job_id not in tables.jobs
    ]


def _keys(tables: Tables) -> list[DanglingRecord]:
    """Return active keys whose job is gone or has ended."""
    return [record for key in tables.active_keys if (record := _key(tables, key))]


def _key(tables: Tables, key: str) -> DanglingRecord | None:
    job = tables.jobs.get(tables.active_keys[key])
    rows = (f"keys scope=active key={key}",)
    if job is None:
        return DanglingRecord(kind=DanglingKind.KEY, rows=rows, about=key)
    if job.is_final:
        return DanglingRecord(
            kind=DanglingKind.KEY_OF_ENDED, rows=rows, about=key, job_id=job.root_id
        )
    return None


def _overlaps(tables: Tables) -> list[DanglingRecord]:
    jobs = [job for job in tables.jobs.values() if job.state is State.RUNNING]
    running = [job for job in jobs if job.delivery is Delivery.ONCE and tables.is_open(job)]
    twice = [name for name, number in Counter(job.name for job in running).items() if number > 1]
    return [_overlap(name, [job for job in running if job.name == name]) for name in twice]


def _unslotted(job: Job) -> DanglingRecord:
    return DanglingRecord(
        kind=DanglingKind.SLOT, rows=(f"jobs seq={job.seq}",), about=job.name, job_id=job.id
    )


def _overlap(name: str, jobs: list[Job]) -> DanglingRecord:
    rows = tuple(f"open_runs job={job.seq}" for job in jobs)
    return DanglingRecord(kind=DanglingKind.OVERLAP, rows=rows, about=name)

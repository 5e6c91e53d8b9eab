"""Add jobs to the model store."""

from datetime import datetime

from outlast.core.event import EventKind, EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob, Slot
from outlast.core.schedule import SlotOutcome, SlotRecord
from outlast.core.transition import to_job, why_malformed, why_not_retried
from outlast.store.contract.jobs import Added
from outlast.testing.model import key_windows
from outlast.testing.model.groups import why_refused
from outlast.testing.model.tables import Tables


def add_job(tables: Tables, new: NewJob, now: datetime) -> Added:
    """Add one job; return its holder or the reason if it is not added."""
    if new.id in tables.jobs:
        return Added(new.id, created=False)
    if (holder := _holder(tables, new, now)) is not None:
        return key_windows.answer(tables, new, holder, now)
    why = why_malformed(new) or _why_not_retried(tables, new) or why_refused(tables, new)
    if why is not None:
        return Added(new.id, created=False, refused=why)
    _keep(tables, new, now)
    return Added(new.id, created=True)


def _holder(tables: Tables, new: NewJob, now: datetime) -> JobId | None:
    if new.slot is not None and (row := tables.slots.get(new.slot)) and row.job_id:
        return row.job_id
    if new.key is not None and new.key in tables.keys:
        return tables.keys[new.key]
    if new.active_key is not None and new.active_key in tables.active_keys:
        return tables.jobs[tables.active_keys[new.active_key]].root_id
    return key_windows.holder_of(tables, new, now)


def _why_not_retried(tables: Tables, new: NewJob) -> str | None:
    before = None if new.retry_of is None else tables.jobs.get(new.retry_of)
    successor = None if before is None else tables.successors.get(before.id)
    return why_not_retried(new, before, successor)


def _keep(tables: Tables, new: NewJob, now: datetime) -> None:
    before = None if new.retry_of is None else tables.jobs[new.retry_of]
    job = to_job(
        new,
        seq=next(tables.seqs),
        position=tables.new_position(new.queue, new.priority),
        now=now,
        root_id=None if before is None else before.root_id,
    )
    tables.insert(job)
    _record_retry(tables, job)
    if new.member and new.group_id is not None:
        tables.members[job.id] = new.group_id
    if new.slot is not None:
        tables.slots[new.slot] = _by_hand(tables, new.slot, job)
    if new.key is not None:
        tables.keys[new.key] = job.root_id
    if new.active_key is not None:
        tables.active_keys[new.active_key] = job.id
    key_windows.take(tables, new, job)


def _by_hand(tables: Tables, slot: Slot, job: Job) -> SlotRecord:
    there = tables.slots.get(slot)
    return SlotRecord(
        slot=slot,
        outcome=SlotOutcome.MANUAL,
        planned=there.planned if there else slot.at,
        actual=job.created_at,
        schedule_id=there.schedule_id if there else job.schedule_id,
        job_id=job.root_id,
        reason=there.outcome if there else None,
    )


def _record_retry(tables: Tables, job: Job) -> None:
    if job.retry_of is not None:
        event = EventRecord(
            id=next(tables.event_ids),
            at=job.created_at,
            job_id=job.retry_of,
            run_id=None,
            kind=EventKind.RETRIED,
            token=tables.jobs[job.retry_of].token,
            reason=None,
            detail=job.id,
        )
        tables.events[job.retry_of].append(event)

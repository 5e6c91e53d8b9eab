"""How the model store takes a new job."""

from datetime import datetime

from outlast.core.event import ZERO, EventKind, EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob, Slot
from outlast.core.limits import MAX_PAYLOAD, check_key, check_name, check_priority, is_storable
from outlast.core.schedule import SlotOutcome, SlotRecord
from outlast.core.state import State
from outlast.errors import InvalidArgument, InvalidJob
from outlast.store.contract.jobs import Added
from outlast.testing.model.groups import why_refused
from outlast.testing.model.tables import Tables


def add_job(tables: Tables, new: NewJob, now: datetime) -> Added:
    """Store one job, or say who stands in its place, or why it cannot be kept."""
    if new.id in tables.jobs:
        return Added(new.id, created=False)
    if (holder := _holder(tables, new)) is not None:
        return Added(holder, created=False)
    why = _malformed(new) or _retry_refused(tables, new) or why_refused(tables, new)
    if why is not None:
        return Added(new.id, created=False, refused=why)
    _keep(tables, new, now)
    return Added(new.id, created=True)


def _malformed(new: NewJob) -> str | None:
    try:
        _check(new)
    except InvalidArgument as error:
        return str(error)
    return None


def _check(new: NewJob) -> None:
    check_name(new.type, what="type")
    check_name(new.name, what="name")
    check_name(new.queue, what="queue")
    check_priority(new.priority)
    if not is_storable(new.params):
        raise InvalidJob("params hold NUL or lone surrogates, which cannot be stored")
    if len(new.params.encode()) > MAX_PAYLOAD:
        raise InvalidJob(f"params are over {MAX_PAYLOAD:,} bytes")
    if new.slot is not None:
        check_name(new.slot.series, what="series")
    if new.key is not None:
        check_key(new.key.key, what="key")
        check_key(new.key.bucket, what="bucket", empty=True)
    if new.active_key is not None:
        check_key(new.active_key, what="active_key")


def _holder(tables: Tables, new: NewJob) -> JobId | None:
    if new.slot is not None and (row := tables.slots.get(new.slot)) and row.job_id:
        return row.job_id
    if new.key is not None and new.key in tables.keys:
        return tables.keys[new.key]
    if new.active_key is not None and new.active_key in tables.active_keys:
        return tables.jobs[tables.active_keys[new.active_key]].root_id
    return None


def _retry_refused(tables: Tables, new: NewJob) -> str | None:
    if new.retry_of is None:
        return None
    before = tables.jobs.get(new.retry_of)
    if before is None:
        return f"retry_of is {new.retry_of}; there is no such job"
    if not before.is_final:
        return (
            f"retry_of is {new.retry_of}, which is {before.state}; only a finished job is retried"
        )
    if before.id in tables.successors:
        return f"retry_of is {new.retry_of}; it was retried as {tables.successors[before.id]}"
    return None


def _keep(tables: Tables, new: NewJob, now: datetime) -> None:
    job = _job(tables, new, now)
    tables.insert(job)
    _tell_the_one_before(tables, job)
    if new.member and new.group_id is not None:
        tables.members[job.id] = new.group_id
    if new.slot is not None:
        tables.slots[new.slot] = _by_hand(tables, new.slot, job)
    if new.key is not None:
        tables.keys[new.key] = job.root_id
    if new.active_key is not None:
        tables.active_keys[new.active_key] = job.id


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


def _tell_the_one_before(tables: Tables, job: Job) -> None:
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


def _job(tables: Tables, new: NewJob, now: datetime) -> Job:
    due = _due(new, now)
    counted_from = new.slot.at if new.slot else due
    return Job(
        id=new.id,
        seq=next(tables.seqs),
        type=new.type,
        name=new.name,
        params=new.params,
        queue=new.queue,
        delivery=new.delivery,
        priority=new.priority,
        position=tables.new_position(new.queue, new.priority),
        max_attempts=new.max_attempts,
        created_at=now,
        available_at=due,
        slot_at=new.slot.at if new.slot else None,
        start_deadline=None if new.start_within is None else counted_from + new.start_within,
        retry_of=new.retry_of,
        root_id=tables.jobs[new.retry_of].root_id if new.retry_of else new.id,
        group_id=new.group_id,
        template_id=new.template_id,
        template_at=new.template_at,
        schedule_id=new.schedule_id,
        state=_first_state(new, is_due=due <= now),
        reason=None,
        token=0,
        failures=0,
        losses=0,
        cancel_requested=False,
        holder=None,
        boot_id=None,
        started_at=None,
        finished_at=None,
    )


def _first_state(new: NewJob, *, is_due: bool) -> State:
    if new.member:
        return State.BLOCKED
    return State.QUEUED if is_due else State.SCHEDULED


def _due(new: NewJob, now: datetime) -> datetime:
    if new.at is not None:
        return new.at
    if new.delay is None and new.slot is not None:
        return max(now, new.slot.at)
    return now + (new.delay or ZERO)

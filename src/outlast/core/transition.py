"""Effect of a decision on job values: NewJob → Job, Change → Job, and the successor of a chain.

Pure functions. A store adds what only it knows: keys, slots, positions, leases and index entries.
"""

from dataclasses import replace
from datetime import datetime

from outlast.core.decide import Change, Guard, JobView, Successor
from outlast.core.delivery import Delivery
from outlast.core.event import ZERO, EventKind
from outlast.core.ids import JobId, RunId
from outlast.core.job import Job, NewJob
from outlast.core.limits import (
    MAX_ERROR,
    MAX_EXIT_CODE,
    MAX_PATH,
    MAX_PAYLOAD,
    MAX_PRIORITY,
    MIN_EXIT_CODE,
    MIN_PRIORITY,
    check_key,
    check_name,
    check_priority,
    is_json,
    is_storable,
    is_text,
)
from outlast.core.metadata import check_metadata
from outlast.core.position import JobEdit
from outlast.core.retry import attempts_exhausted
from outlast.core.run import UNKNOWN_HOLDER, Claim, LeaseHolder, RunRecord
from outlast.core.state import FINAL, State
from outlast.errors import InvalidArgument, InvalidJob


def may_be_prefetched(job: JobView) -> bool:
    """Return whether a worker may hold the job while it waits for a free execution slot.

    A worker that dies loses what it holds, started or not. So only `lease` jobs without a lost run
    may wait there, and none whose next loss would end it before its handler has run.
    """
    is_last_attempt = attempts_exhausted(job.failures + 1, job.max_attempts)
    return job.delivery is Delivery.LEASE and not job.losses and not is_last_attempt


def why_malformed(new: NewJob) -> str | None:
    """Return why no store can keep `new`, or None if all its fields are valid."""
    try:
        check_new_job(new)
    except InvalidArgument as error:
        return str(error)
    return None


def check_new_job(new: NewJob) -> None:
    """Raise InvalidArgument if a field of `new` is not valid."""
    for what, name in (("type", new.type), ("name", new.name), ("queue", new.queue)):
        check_name(name, what=what)
    check_priority(new.priority)
    if not is_storable(new.params):
        raise InvalidJob("params hold NUL or lone surrogates, which cannot be stored")
    if len(new.params.encode()) > MAX_PAYLOAD:
        raise InvalidJob(f"params are over {MAX_PAYLOAD:,} bytes")
    if not is_json(new.params, MAX_PAYLOAD):
        raise InvalidJob("params are no JSON, and no handler could read them")
    if new.slot is not None:
        check_name(new.slot.series, what="series")
    check_dedupe_key(new)
    if new.metadata is not None:
        check_metadata(new.metadata)
    if new.active_key is not None:
        check_key(new.active_key, what="active_key")


def check_dedupe_key(new: NewJob) -> None:
    """Raise InvalidArgument if the dedupe key of `new` is not valid."""
    if new.key is not None:
        check_key(new.key.key, what="key")
        check_key(new.key.bucket, what="bucket", empty=True)


def why_not_retried(new: NewJob, before: Job | None, successor: str | None) -> str | None:
    """Return why `new` cannot retry the job `before`, whose successor is `successor`."""
    if new.retry_of is None:
        return None
    if before is None:
        return f"retry_of is {new.retry_of}; there is no such job"
    if not before.is_final:
        state = before.state
        return f"retry_of is {new.retry_of}, which is {state}; only a finished job is retried"
    if successor is not None:
        return f"retry_of is {new.retry_of}; it was retried as {successor}"
    return None


def to_job(
    new: NewJob, *, seq: int, position: int, now: datetime, root_id: JobId | None = None
) -> Job:
    """Return the job that `new` becomes at `now`; `root_id` is the root of the job it retries.

    Raises OverflowError if the job would be due beyond the year 9999.
    """
    due = _due_time(new, now)
    deadline_start = new.slot.at if new.slot else due
    return Job(
        id=new.id,
        seq=seq,
        type=new.type,
        name=new.name,
        params=new.params,
        queue=new.queue,
        delivery=new.delivery,
        priority=new.priority,
        position=position,
        max_attempts=new.max_attempts,
        created_at=now,
        available_at=due,
        slot_at=new.slot.at if new.slot else None,
        start_deadline=None if new.start_within is None else deadline_start + new.start_within,
        retry_of=new.retry_of,
        root_id=new.id if root_id is None else root_id,
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
        active_key=new.active_key,
        metadata=new.metadata,
    )


def is_storable_change(change: Change) -> bool:
    """Return True if every store can keep the texts and numbers of the change."""
    path = change.log_path
    return (
        is_text(change.error, MAX_ERROR)
        and is_text(change.detail, MAX_ERROR)
        and (change.result is None or is_json(change.result, MAX_PAYLOAD))
        and (path is None or (is_storable(path) and 0 < len(path) <= MAX_PATH))
        and MIN_EXIT_CODE <= (change.exit_code or 0) <= MAX_EXIT_CODE
    )


def yield_to_cancel(job: Job, change: Change) -> Change:
    """Return the change to CANCELLED if a requested cancel takes precedence, else `change`."""
    if not (change.move.yields_to_cancel and job.cancel_requested):
        return change
    move = replace(change.move, to=State.CANCELLED, kind=EventKind.CANCELLED)
    return replace(change, move=move, reason="cancel_requested", successor=None)


def is_on_record(change: Change, run: RunRecord | None, successor: str | None) -> bool:
    """Return True if the run under the change's token has ended exactly as the change says.

    Then the change was written before, and its reply was lost. `successor` is the job's.
    """
    if run is None or change.move.guard is not Guard.OPEN or change.move.run is not run.status:
        return False
    if change.successor is not None and successor not in (None, change.successor.id):
        return False
    written = run.reason, run.error, run.result, run.exit_code, run.log_path
    asked = change.reason, change.error, change.result, change.exit_code, change.log_path
    return written == asked


def apply_change(job: Job, change: Change, now: datetime) -> Job:
    """Return the job after the change.

    A failed job that gets its successor, or is given up later, keeps the time it ended.
    """
    to = change.move.to
    if to is State.RUNNING:
        return replace(job, cancel_requested=True)
    job = replace(
        job,
        state=to,
        cancel_requested=False,
        progress=None,
        failures=job.failures if change.failures is None else change.failures,
        losses=job.losses if change.losses is None else change.losses,
    )
    if job.finished_at is not None and to is change.was:
        return job
    if to in FINAL:
        return replace(job, reason=change.reason, finished_at=job.finished_at or now)
    keeps_its_time = not change.delay and to is not State.RETRY_WAIT
    return job if keeps_its_time else replace(job, available_at=now + change.delay)


def to_successor(job: Job, successor: Successor, *, seq: int, position: int, now: datetime) -> Job:
    """Return the next job of the chain: the request and counters of `job`, and none of its runs."""
    return replace(
        job,
        id=successor.id,
        seq=seq,
        position=position,
        created_at=now,
        available_at=now + successor.delay,
        start_deadline=None,
        retry_of=job.id,
        state=State.SCHEDULED if successor.delay else State.QUEUED,
        reason=None,
        token=0,
        holder=None,
        boot_id=None,
        started_at=None,
        finished_at=None,
    )


def start_run(job: Job, holder: LeaseHolder, now: datetime) -> Job:
    """Return the job with its next run open, under the next token."""
    return replace(
        job,
        state=State.RUNNING,
        token=job.token + 1,
        holder=holder.instance_id,
        boot_id=holder.boot_id,
        started_at=job.started_at or now,
        progress=None,
    )


def start_missing_run(job: Job, now: datetime) -> Job:
    """Return a detached job with the run that recovery opens and closes; no worker holds it."""
    return replace(
        job,
        token=job.token + 1,
        holder=UNKNOWN_HOLDER.instance_id,
        boot_id=UNKNOWN_HOLDER.boot_id,
        started_at=job.started_at or now,
    )


def to_claim(job: Job, run_id: RunId) -> Claim:
    """Return the claim of a job whose run is open."""
    return Claim(
        job_id=job.id,
        token=job.token,
        run_id=run_id,
        type=job.type,
        params=job.params,
        delivery=job.delivery,
        failures=job.failures,
        losses=job.losses,
        max_attempts=job.max_attempts,
        slot_at=job.slot_at,
        metadata=job.metadata,
    )


def has_missed_start_deadline(job: Job, now: datetime) -> bool:
    """Return True if the start deadline has passed before the first run."""
    return not job.token and job.start_deadline is not None and job.start_deadline < now


def is_storable_edit(job: Job, edit: JobEdit, now: datetime) -> bool:
    """Return True if the edit's values are valid; params are fixed after the first run."""
    try:
        edited_due_time(edit, now)
    except OverflowError:
        return False
    has_new_params = edit.params is not None
    has_valid_params = edit.params is None or is_json(edit.params, MAX_PAYLOAD)
    is_fixed = has_new_params and job.token > 0
    return not is_fixed and has_valid_params and _is_priority(edit.priority or 0)


def apply_edit(job: Job, change: Change, *, position: int, now: datetime) -> Job:
    """Return the job after the edit of the change; `position` is its position from now on."""
    edit = change.edit
    assert edit is not None
    return replace(
        job,
        state=change.move.to,
        params=job.params if edit.params is None else edit.params,
        priority=job.priority if edit.priority is None else edit.priority,
        position=position,
        available_at=edited_due_time(edit, now) or job.available_at,
    )


def edited_due_time(edit: JobEdit, now: datetime) -> datetime | None:
    """Return when an edited job is due, or None if the edit leaves that as it is."""
    return edit.at if edit.delay is None else now + edit.delay


def _is_priority(value: int) -> bool:
    return MIN_PRIORITY <= value <= MAX_PRIORITY


def _first_state(new: NewJob, *, is_due: bool) -> State:
    if new.member:
        return State.BLOCKED
    return State.QUEUED if is_due else State.SCHEDULED


def _due_time(new: NewJob, now: datetime) -> datetime:
    if new.at is not None:
        return new.at
    if new.delay is None and new.slot is not None:
        return max(now, new.slot.at)
    return now + (new.delay or ZERO)

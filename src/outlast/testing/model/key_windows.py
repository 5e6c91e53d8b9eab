"""Windows of the model store: keys that are held for a while, and jobs that take a new request."""

from datetime import datetime

from outlast.core.event import EventKind
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.key_window import (
    TOO_LATE,
    has_valid_window,
    is_unclaimed,
    replacement,
    window_length,
)
from outlast.core.transition import why_malformed
from outlast.store.contract.jobs import Added
from outlast.testing.model import positions
from outlast.testing.model.tables import HeldWindow, Tables


def holder_of(tables: Tables, new: NewJob, now: datetime) -> JobId | None:
    """Return the job that holds the key of the window; None if the window has ended."""
    held = None if new.window is None else tables.windows.get(new.window.name)
    if held is None or new.window is None or not has_valid_window(new):
        return None
    in_window = (
        is_unclaimed(tables.jobs.get(held.root_id)) if new.window.span is None else now < held.until
    )
    return held.root_id if in_window or was_replaced(tables, held.root_id, new) else None


def take(tables: Tables, new: NewJob, job: Job) -> None:
    """Let the job hold the key of its window."""
    if new.window is not None:
        until = job.created_at + window_length(new)
        tables.windows[new.window.name] = HeldWindow(job.root_id, until)


def answer(tables: Tables, new: NewJob, holder: JobId, now: datetime) -> Added:
    """Return the answer to a job whose key is held, after the holder took its request."""
    if not new.replaces:
        return Added(holder, created=False)
    if (why := why_malformed(new)) is not None:
        return Added(new.id, created=False, refused=why)
    job = tables.jobs.get(holder)
    change = replacement(job, new, now)
    if job is None or change is None:
        return Added(holder, created=False, replaced=was_replaced(tables, holder, new))
    if not positions.may_change(tables, job, change, now):
        return Added(new.id, created=False, refused=TOO_LATE)
    positions.edit(tables, job, change, now)
    tables.append_event(
        change, EventKind.EDITED, at=now, run_id=None, reason=change.reason, detail=change.error
    )
    return Added(holder, created=False, replaced=True)


def was_replaced(tables: Tables, holder: JobId, new: NewJob) -> bool:
    """Return whether an earlier attempt of this enqueue wrote its request."""
    told = tables.events.get(holder, [])
    return any(event.kind is EventKind.EDITED and event.detail == new.id for event in told)


def forget_ended(tables: Tables, now: datetime, limit: int) -> None:
    """Delete up to `limit` windows that have ended, the earliest first."""
    ended = [
        (held.until, name)
        for name, held in tables.windows.items()
        if held.until <= now
        and (name[0] == "window" or not is_unclaimed(tables.jobs.get(held.root_id)))
    ]
    for _, name in sorted(ended)[:limit]:
        del tables.windows[name]

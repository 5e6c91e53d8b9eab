"""Short texts about a job: its attempt, how long it is kept, and what its state means now."""

from datetime import datetime, timedelta

from outlast.core.duration import format_exact, format_short
from outlast.core.envelope import readable
from outlast.core.job import Job
from outlast.core.state import State
from outlast.process_identity import proved_dead

PRUNED = frozenset({State.SUCCEEDED, State.SKIPPED, State.CANCELLED})
"""Ends after which a job is deleted when its retention is over; the others are kept."""


def kept_note(last: Job, retention: timedelta | None) -> str | None:
    """Return how long a job is kept and why; None if it has not ended.

    Args:
        last: The last job of its retry chain, which decides for the whole chain.
        retention: The setting of the app; None keeps every job.
    """
    if not last.is_final:
        return None
    if last.state not in PRUNED:
        return "for ever: a job that failed is never deleted"
    until = kept_until(last, retention)
    if until is None or retention is None:
        return "for ever: its retention has no end"
    return f"until {until:%Y-%m-%d %H:%M:%S} UTC (retention {format_exact(retention)})"


def kept_until(last: Job, retention: timedelta | None) -> datetime | None:
    """Return when the chain that ends with this job may be deleted; None: never, or not ended."""
    if last.finished_at is None or retention is None or last.state not in PRUNED:
        return None
    return last.finished_at + retention


def status_note(job: Job, now: datetime, retention: timedelta | None = None) -> str:
    """Return a short note on the state: reason, lease holder, delay, attempt and retention."""
    if job.is_final:
        until = kept_until(job, retention)
        return _end_note(job) + ("" if until is None else f", kept until {until:%Y-%m-%d}")
    again = f", {job.attempt_text}" if job.failures else ""
    if job.holder is not None and job.started_at is not None and job.state is State.RUNNING:
        asked = ", asked to stop" if job.cancel_requested else ""
        is_dead = job.boot_id is not None and job.boot_id in proved_dead([job.boot_id])
        return f"on {job.holder}{', which is dead' if is_dead else ''}{asked}{again}"
    if job.available_at > now:
        return f"due in {format_short(job.available_at - now)}{again}"
    return again.removeprefix(", ")


def _end_note(job: Job) -> str:
    took = ""
    if job.started_at is not None and job.finished_at is not None:
        took = f" after {format_short(job.finished_at - job.started_at)}"
    again = f", {job.attempt_text}" if job.failures else ""
    return f"{readable(job.reason) or 'done'}{took}{again}"

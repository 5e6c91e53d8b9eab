"""Keys that are held for a while, and waiting jobs that take the request of another enqueue."""

from typing import Any

from outlast.clock import from_micros
from outlast.core.duration import MICROSECOND
from outlast.core.ids import JobId
from outlast.core.job import KeyWindow, NewJob
from outlast.core.key_window import TOO_LATE, replacement, window_length
from outlast.core.transition import why_malformed
from outlast.store.contract.jobs import Added
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.operations.apply import apply
from outlast.store.sqlite.writer import WriteTransaction


def holder_of(tx: WriteTransaction, job: NewJob, window: KeyWindow) -> JobId | None:
    """Return the job that holds the key; a key whose window has ended is freed first."""
    tx.run("add.end_window", **_names(window), id=job.id, now=tx.now)
    holder: JobId | None = tx.value("add.key_holder", **_names(window))
    return holder


def claim(tx: WriteTransaction, job: NewJob, window: KeyWindow) -> None:
    """Let the job hold the key; no row has it."""
    expires_at = tx.now + window_length(job) // MICROSECOND
    tx.run("add.claim_key", **_names(window), id=job.id, expires_at=expires_at)


def answer(tx: WriteTransaction, job: NewJob, holder: JobId) -> Added:
    """Return the answer to a job whose key is held, after the holder took its request."""
    if not job.replaces:
        return Added(holder, created=False)
    if (why := why_malformed(job)) is not None:
        return Added(job.id, created=False, refused=why)
    row = tx.run("jobs.get", ids=to_json_param([holder])).fetchone()
    found = None if row is None else job_rows.job(row)
    change = replacement(found, job, from_micros(tx.now))
    if change is None:
        earlier = tx.value("add.was_replaced", holder=holder, id=job.id)
        return Added(holder, created=False, replaced=bool(earlier))
    tx.run("schema.temp_changes")
    if apply(tx, [change]) != [True]:
        return Added(job.id, created=False, refused=TOO_LATE)
    return Added(holder, created=False, replaced=True)


def _names(window: KeyWindow) -> dict[str, Any]:
    scope, key, bucket = window.name
    return {"scope": scope, "key": key, "bucket": bucket}

"""Keys that are held for a while, and waiting jobs that take the request of another enqueue."""

from collections.abc import Awaitable, Callable
from typing import Final

from outlast.clock import from_micros
from outlast.core.change import Change
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.key_window import TOO_LATE, has_valid_window, is_unclaimed, replacement
from outlast.core.transition import is_storable_edit, why_malformed
from outlast.errors import StoreBusy
from outlast.store.contract.jobs import Added
from outlast.store.postgres.operations.apply_lookup import find_locked, lock_identities
from outlast.store.postgres.operations.positions import move_or_edit
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork
from outlast.store.rows import jobs as job_rows

MAX_CLAIMED_HOLDERS: Final = 20
"""Number of times a holder is claimed before it can take the request; each time another one."""


def takes_turn(job: NewJob) -> bool:
    """Return whether the job needs a transaction of its own: it may end a window or replace."""
    return job.window is not None or job.replaces


async def add_in_turn(
    work: PostgresUnitOfWork, job: NewJob, insert: Callable[[], Awaitable[list[Added]]]
) -> Added:
    """Insert the job by `insert`, or let the holder of its key take its request."""
    before: JobId | None = None
    for _ in range(MAX_CLAIMED_HOLDERS):
        [added] = await insert()
        if added.created or added.refused is not None or not job.replaces or added.id == job.id:
            return added
        answer = await _replace(work, job, added.id, is_known=added.id == before)
        if answer is not None:
            return answer
        before = added.id
    raise StoreBusy(
        f"the holder of the key was claimed {MAX_CLAIMED_HOLDERS} times before it could take the "
        "request; try again"
    )


async def end_window(work: PostgresUnitOfWork, job: NewJob) -> None:
    """Free the key of the job's window if that has ended; another transaction may take it first."""
    if job.window is not None and has_valid_window(job):
        scope, key, bucket = job.window.name
        values = {"scope": scope, "key": key, "bucket": bucket, "id": job.id}
        await work.run("add.end_window", now=work.now, **values)


async def _replace(
    work: PostgresUnitOfWork, job: NewJob, holder: JobId, *, is_known: bool
) -> Added | None:
    """Return what became of the request; None if the holder was claimed since the lookup.

    Then the next lookup frees a debounce key. If it finds the holder again, that holds another key.
    """
    if (why := why_malformed(job)) is not None:
        return Added(job.id, created=False, refused=why)
    rows = await work.rows("jobs.get", ids=[holder])
    found = job_rows.job(tuple(rows[0])) if rows else None
    change = replacement(found, job, from_micros(work.now))
    if change is None:
        earlier = await work.one("add.was_replaced", holder=holder, id=job.id)
        is_debounced = job.window is not None and job.window.span is None
        if is_debounced and not (earlier or is_known or is_unclaimed(found)):
            return None
        return Added(holder, created=False, replaced=bool(earlier))
    assert found is not None
    assert change.edit is not None
    if not is_storable_edit(found, change.edit, from_micros(work.now)):
        return Added(job.id, created=False, refused=TOO_LATE)
    is_written = await _edit(work, change)
    return Added(holder, created=False, replaced=True) if is_written else None


async def _edit(work: PostgresUnitOfWork, change: Change) -> bool:
    """Write the edit with its event, behind the fence; False if the job no longer waits."""
    [locked] = await find_locked(work, [change], await lock_identities(work, [change]))
    if locked is None or not await move_or_edit(work, change, locked):
        return False
    event = {"jobs": [change.job_id], "tokens": [change.token], "run_ids": [None]}
    said = {"reasons": [change.reason], "details": [change.error], "kinds": [change.move.kind]}
    await work.run("apply.record_events", now=work.now, **event, **said)
    return True

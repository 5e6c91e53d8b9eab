"""Promote due jobs: those that waited for a time become ready to be claimed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from outlast.clock import to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.job import Job
from outlast.core.state import State
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_in_chunks
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange, StoredItem
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.operations import quarantine
from outlast.store.keyvalue.outcomes import failure, succeeded
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork

MAX_PAGE = 1_000


async def promote_due(context: StoreContext, *, limit: int) -> int:
    """Move up to `limit` due jobs to QUEUED; return how many.

    If some cannot be moved, the others are moved before the error is raised.
    """
    await complete_all(context)
    moved, now = 0, context.now()
    error: Exception | None = None
    while moved < limit:
        most = min(limit - moved, MAX_PAGE)
        entries = await due_entries(UnitOfWork(context.engine), now, limit=most)
        outcomes = await run_in_chunks(
            context,
            [entry.value["id"] for entry in entries],
            lambda ids: context.run_unit(partial(_promote, ids=ids, now=now)),
            records=6,
        )
        error, answers = failure(outcomes), succeeded(outcomes)
        moved += sum(answers)
        is_left = error is None and sum(answers) < len(entries)
        gone = await quarantine.set_aside(context, entries) if is_left else 0
        if not any(answers) and not gone:
            break
    if error is not None:
        raise error
    return moved


async def due_entries(unit: UnitOfWork, now: datetime, *, limit: int) -> list[StoredItem]:
    """Return index entries of jobs that are due, the earliest first."""
    return await unit.range(due_before(now), limit=limit)


def due_before(now: datetime) -> KeyRange:
    """Return the key range of those entries."""
    return KeyRange(key_layout.DUE, end=key_layout.number(to_micros(now) + 1))


def is_past(entry: StoredItem, now: datetime) -> bool:
    """Return whether the index entry is one of a job that is due."""
    return entry.key.sort < key_layout.number(to_micros(now) + 1)


def next_due(
    entries: Sequence[StoredItem], queue: str, now: datetime, *, is_cut: bool
) -> timedelta | None:
    """Return how long no job of the queue becomes due, by the earliest index entries of all.

    None if there is none. If more entries follow, none of theirs becomes due before the last one.
    """
    known = [entry for entry in entries if entry.value["queue"] == queue]
    known += entries[-1:] if is_cut else ()
    moments = [key_layout.leading_number(entry.key.sort) for entry in known]
    return min(
        ((moment - to_micros(now)) * MICROSECOND for moment in moments if moment is not None),
        default=None,
    )


async def _promote(unit: UnitOfWork, *, ids: Sequence[str], now: datetime) -> list[bool]:
    """Queue those of the jobs that are due; return for each whether it was."""
    found = await job_repository.load_many(unit, ids)
    return [record is not None and _queue_due(unit, record, now) for record in found]


def _queue_due(unit: UnitOfWork, record: JobRecord, now: datetime) -> bool:
    if record.is_detached or not is_due(record.job, now):
        return False
    job_repository.save(unit, record, replace(record, job=replace(record.job, state=State.QUEUED)))
    return True


def is_due(job: Job, now: datetime) -> bool:
    """Return True if the job waits for a time that has come."""
    return job.state in (State.SCHEDULED, State.RETRY_WAIT) and job.available_at <= now

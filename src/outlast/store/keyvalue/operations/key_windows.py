"""Keys that are held for a while, and waiting jobs that take the request of another enqueue."""

from datetime import datetime
from functools import partial
from typing import Final

from outlast.clock import to_micros
from outlast.core.event import EventKind
from outlast.core.ids import JobId
from outlast.core.job import Job, KeyWindow, NewJob
from outlast.core.key_window import (
    TOO_LATE,
    has_valid_window,
    is_unclaimed,
    replacement,
    window_length,
)
from outlast.core.transition import why_malformed
from outlast.store.contract.jobs import Added
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem
from outlast.store.keyvalue.operations import positions
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import key_windows
from outlast.store.keyvalue.repositories.key_windows import WindowRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL: Final = 1_000_000
PAGE: Final = 200


def place_of(new: NewJob) -> Key | None:
    """Return the key of the job's window record; None without a valid window."""
    if new.window is None or not has_valid_window(new):
        return None
    return key_layout.window_key(*new.window.name)


async def holder_of(unit: UnitOfWork, new: NewJob, now: datetime) -> JobId | None:
    """Return the job that holds the key of the window; None if the window has ended."""
    place = place_of(new)
    held = None if place is None else await key_windows.load(unit, place)
    if held is None:
        return None
    holder = JobId(held.job_id)
    if await _is_held(unit, held, now) or await _was_replaced(unit, holder, new):
        return holder
    return None


async def take(unit: UnitOfWork, new: NewJob, window: KeyWindow, job: Job) -> None:
    """Let the job hold the key of its window."""
    until = to_micros(job.created_at + window_length(new))
    scope, key, bucket = window.name
    record = WindowRecord(scope=scope, key=key, bucket=bucket, job_id=job.root_id, until=until)
    key_windows.save(unit, await key_windows.load(unit, record.place), record)


async def answer(unit: UnitOfWork, new: NewJob, holder: JobId, now: datetime) -> Added:
    """Return the answer to a job whose key is held, after the holder took its request."""
    if not new.replaces or holder == new.id:
        return Added(holder, created=False)
    if (why := why_malformed(new)) is not None:
        return Added(new.id, created=False, refused=why)
    record = await job_repository.load(unit, holder)
    change = None if record is None else replacement(record.job, new, now)
    if record is None or change is None:
        earlier = await _was_replaced(unit, holder, new)
        return Added(holder, created=False, replaced=earlier)
    if not await positions.may_change(unit, record, change, now):
        return Added(new.id, created=False, refused=TOO_LATE)
    await positions.edit(unit, record, change, now)
    await job_repository.append_event(
        unit,
        EventKind.EDITED,
        at=now,
        job_id=holder,
        token=change.token,
        reason=change.reason,
        detail=change.error,
    )
    return Added(holder, created=False, replaced=True)


async def delete_ended(context: StoreContext, limit: int) -> None:
    """Delete up to `limit` windows that have ended, the earliest first."""
    end, start, gone = key_layout.number(to_micros(context.now()) + 1), "", 0
    while gone < limit:
        span = KeyRange(key_layout.WINDOW_END, start, end)
        entries = await context.engine.range(span, limit=PAGE)
        for entry in entries:
            if gone < limit and entry.damage is None:
                gone += await context.run_unit(partial(_delete_one, entry=entry, now=context.now()))
        if len(entries) < PAGE:
            return
        start = entries[-1].key.sort + "\0"


async def _delete_one(unit: UnitOfWork, *, entry: StoredItem, now: datetime) -> bool:
    record = await key_windows.load(unit, key_windows.place_of(entry.value))
    if record is None or record.entry != entry.key or await _is_held(unit, record, now):
        return False
    await unit.get(entry.key)
    key_windows.save(unit, record, None)
    return True


async def _is_held(unit: UnitOfWork, held: WindowRecord, now: datetime) -> bool:
    """Return whether the window goes on; a quarantined job may not have been claimed yet."""
    if held.scope == "window":
        return not held.is_over(now)
    record = await job_repository.load(unit, held.job_id)
    if record is None:
        return await job_repository.damage(unit, held.job_id) is not None
    return is_unclaimed(record.job)


async def _was_replaced(unit: UnitOfWork, holder: JobId, new: NewJob) -> bool:
    """Return whether an earlier attempt of this enqueue wrote its request."""
    listed = await unit.range(key_layout.of_job(key_layout.EVENT, holder), limit=ALL)
    found = await unit.engine.get([key_layout.stream_key(each.value["id"]) for each in listed])
    return any(
        each is not None
        and each.damage is None
        and each.value["kind"] == EventKind.EDITED
        and each.value.get("detail") == new.id
        for each in found
    )

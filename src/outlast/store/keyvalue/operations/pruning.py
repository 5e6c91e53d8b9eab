"""Prune a finished chain: a small one in one unit of work, a large one in steps.

The tip of a large chain is marked first, which decides: from then on it cannot be retried, `verify`
leaves the marked jobs out, and the next prune goes on where one was interrupted.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

from outlast.core.state import State
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_in_chunks
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, StoredItem, Write
from outlast.store.keyvalue.operations.jobs import chain_of
from outlast.store.keyvalue.outcomes import concerns_store, require_all
from outlast.store.keyvalue.repositories import groups, reservations, runs
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories.job_codec import JobRecord, tombstone
from outlast.store.keyvalue.unit_of_work import UnitOfWork

log = logging.getLogger("outlast.store")

ALL: Final = 1_000_000
PRUNED: Final = frozenset({State.SUCCEEDED, State.SKIPPED, State.CANCELLED})
HISTORY: Final = (key_layout.RUN, key_layout.ARTIFACTS, key_layout.EVENT)
MOST_TRANSACTIONS: Final = 4
"""Transactions that the deletion of one chain may take as a whole."""

RECORDS: Final = 6
"""Records of a job beside its history: itself, its id, number, place, dedupe key and member."""


async def try_prune(context: StoreContext, job_id: str, before: datetime) -> int | None:
    """Prune the chain that ends with this job; return how many jobs, or None if that failed.

    Raises only errors that concern the whole store.
    """
    try:
        return await prune_chain(context, job_id, before)
    except Exception as error:
        if concerns_store(error):
            raise
        log.warning("a finished job cannot be pruned; others are job=%s", job_id, exc_info=error)
        return None


async def prune_chain(context: StoreContext, job_id: str, before: datetime) -> int:
    """Delete the chain if its last job ended well before that moment; return how many jobs."""
    work = partial(_prune_at_once, context=context, job_id=job_id, before=before)
    gone = await context.run_unit(work)
    return await _prune_in_steps(context, job_id) if gone is None else gone


async def _prune_at_once(
    unit: UnitOfWork, *, context: StoreContext, job_id: str, before: datetime
) -> int | None:
    """Delete the chain; mark it instead, and return None, if it is too large for that."""
    chain = await chain_of(unit, job_id)
    if not chain or chain[-1].job.id != job_id or not _is_old(chain[-1], before):
        return 0
    before_it = chain[0].job.retry_of
    if before_it is not None and await job_repository.damage(unit, before_it) is not None:
        return 0  # the chain goes together, and one of it is quarantined
    group_id = chain[0].member
    group = None if group_id is None else await groups.load(unit, group_id)
    if group is not None and not group.is_over:
        return 0
    if chain[-1].is_marked:
        return None
    history = await _small_history(unit, chain)
    if history is None:
        job_repository.save(unit, chain[-1], replace(chain[-1], is_marked=True))
        return None
    for record in reversed(chain):
        await delete_record(unit, record, _until(context))
    for key in history:
        unit.delete(key)
    for record in chain[:-1]:  # jobs with a successor never change
        unit.skip_version_check(key_layout.job_key(record.job))
        unit.skip_version_check(key_layout.pointer(record.job.id))
    if group is not None:
        _leave(unit, group, sum(record.member is not None for record in chain))
    return len(chain)


async def _small_history(unit: UnitOfWork, chain: Sequence[JobRecord]) -> list[Key] | None:
    """Return the keys of the chain's runs and events; None if it is too large."""
    room = MOST_TRANSACTIONS * unit.engine.limits.most_writes - RECORDS * len(chain)
    history: list[Key] = []
    for record in chain:
        if len(history) <= room:
            history += await history_of(unit, record, limit=room + 1)
    return history if len(history) <= room else None


async def _prune_in_steps(context: StoreContext, job_id: str) -> int:
    """Delete a marked chain job by job, the root first, and of each job its history first."""
    chain = await context.run_unit(partial(chain_of, job_id=job_id))
    ids = [record.job.id for record in chain]
    require_all(
        await run_in_chunks(
            context, ids, lambda own: context.run_unit(partial(_mark, ids=own)), records=1
        )
    )
    gone = 0
    for each in ids:
        await _delete_history(context, each)
        work = partial(_delete_marked, context=context, job_id=each, tip_id=job_id)
        gone += await context.run_unit(work)
    return gone


async def _mark(unit: UnitOfWork, *, ids: Sequence[str]) -> list[bool]:
    found = await job_repository.load_many(unit, ids)
    for record in found:
        if record is not None and not record.is_marked:
            job_repository.save(unit, record, replace(record, is_marked=True))
    return [record is not None for record in found]


async def _delete_history(context: StoreContext, job_id: str) -> None:
    """Delete runs, artifacts, events and logs, the oldest first, by several transactions."""
    engine = context.engine
    most = max(1, engine.limits.most_writes // 3)  # a run has up to two bodies, an event a copy
    for part in (*HISTORY, key_layout.LOG):
        while found := await engine.range(key_layout.of_job(part, job_id), limit=most):
            gone = [Write(key, None) for entry in found for key in _keys(entry)]
            await engine.transact({}, gone)


async def _delete_marked(
    unit: UnitOfWork, *, context: StoreContext, job_id: str, tip_id: str
) -> int:
    record, tip = await job_repository.load_many(unit, [job_id, tip_id])
    if record is None or tip is None:
        return 0  # another process has deleted it
    if job_id != tip_id:  # an event of this job, recorded meanwhile, touches the tip
        unit.require(key_layout.job_key(tip.job))
    await delete_job(unit, record, _until(context))
    group = None if record.member is None else await groups.load(unit, record.member)
    if group is not None:
        _leave(unit, group, 1)
    return 1


def _leave(unit: UnitOfWork, group: groups.GroupRecord, members: int) -> None:
    """Count members that are gone; the group goes with the last one."""
    left = group.present - members
    groups.save(unit, group, replace(group, present=left) if left > 0 else None)


def _until(context: StoreContext) -> datetime | None:
    return None if context.tombstones is None else context.now() + context.tombstones


def _is_old(tip: JobRecord, before: datetime) -> bool:
    ended = tip.job.finished_at
    return tip.job.state in PRUNED and ended is not None and ended < before


async def delete_job(unit: UnitOfWork, record: JobRecord, until: datetime | None = None) -> None:
    """Delete a job with its runs and events; its dedupe key stays as a tombstone."""
    await delete_record(unit, record, until)
    for key in await history_of(unit, record):
        unit.delete(key)


async def delete_record(unit: UnitOfWork, record: JobRecord, until: datetime | None) -> None:
    """Delete a job without its history."""
    job_repository.save(unit, record, None)
    if record.key is not None:
        unit.put(key_layout.dedupe_key(record.key), tombstone(record, record.key, until))
    held_by = (
        None if record.reservation is None else await reservations.load(unit, record.reservation)
    )
    if held_by is not None and not held_by.reservation.is_active:
        reservations.forget(unit, held_by)


async def history_of(unit: UnitOfWork, record: JobRecord, *, limit: int = ALL) -> list[Key]:
    """Return the keys of a job's runs, artifacts, events and logs, of each up to `limit`."""
    names = (*HISTORY, key_layout.LOG) if record.is_logged else HISTORY
    parts = [key_layout.of_job(part, record.job.id) for part in names]
    found = [await unit.range(part, limit=limit) for part in parts]
    return [key for entries in found for entry in entries for key in _keys(entry)]


def _keys(entry: StoredItem) -> list[Key]:
    """Return the record; with the bodies of a run, and the event of an entry under its job."""
    match entry.key.part:
        case key_layout.RUN:
            return runs.keys_of(entry)
        case key_layout.EVENT:
            return [entry.key, key_layout.stream_key(entry.value["id"])]
        case _:
            return [entry.key]

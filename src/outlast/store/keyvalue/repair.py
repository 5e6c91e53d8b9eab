"""What recovery looks for, and what retention takes away."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from outlast.core.delivery import Delivery
from outlast.core.event import EventKind, EventRecord
from outlast.core.job import Job
from outlast.core.state import State
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange, StoredItem
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.operations import positions
from outlast.store.keyvalue.operations.jobs import chain_of
from outlast.store.keyvalue.repositories import (
    groups,
    queues,
    reservations,
    runs,
)
from outlast.store.keyvalue.repositories import (
    jobs as job_repository,
)
from outlast.store.keyvalue.repositories.job_codec import JobRecord, tombstone
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL: Final = 1_000_000
PAGE: Final = 200
PRUNED: Final = frozenset({State.SUCCEEDED, State.SKIPPED, State.CANCELLED})


async def held(
    desk: StoreContext, *, besides: str, instance_id: str | None, after: int, limit: int
) -> list[Job]:
    """Running jobs of other boots, in the order in which they were stored."""

    async def work(unit: UnitOfWork) -> list[Job]:
        open_runs = [
            entry.value
            for name in await queues.names(unit)
            for entry in await queues.open_entries(unit, name, limit=ALL)
        ]
        others = [v for v in open_runs if v["boot"] != besides and v["seq"] > after]
        own = [v for v in others if instance_id is None or v["holder"] == instance_id]
        own.sort(key=lambda value: value["seq"])
        ids = list(dict.fromkeys(value["id"] for value in own))  # one that is renewed is met twice
        found = await job_repository.load_many(unit, ids[:limit])
        return [kept.job for kept in found if kept is not None and kept.is_open]

    return await desk.run_unit(work)


async def adrift(desk: StoreContext, *, after: int, limit: int) -> list[Job]:
    """Jobs whose record has lost its state; through everything there is."""
    return await _listed(desk, lambda kept: kept.is_detached, after, limit)


async def unfollowed(desk: StoreContext, *, after: int, limit: int) -> list[Job]:
    """Failed links of chains that nothing follows; through everything there is."""
    return await _listed(desk, _is_unfollowed, after, limit)


def _is_unfollowed(kept: JobRecord) -> bool:
    is_failed = kept.job.delivery is Delivery.LINKED and kept.job.state is State.FAILED
    return is_failed and kept.successor is None


async def _listed(
    desk: StoreContext, fits: Callable[[JobRecord], bool], after: int, limit: int
) -> list[Job]:
    found: list[Job] = []
    while len(found) < limit:
        page = await desk.run_unit(partial(job_repository.all_jobs, after=after, limit=PAGE))
        found += [kept.job for kept in page if fits(kept)]
        if not page:
            break
        after = page[-1].job.seq
    return found[:limit]


async def remove_orphans(desk: StoreContext, *, limit: int) -> list[EventRecord]:
    """Take the closed runs of jobs that are gone, and leave a copy of each."""
    removed: list[EventRecord] = []
    start = ""
    while len(removed) < limit:
        entries = await desk.engine.range(KeyRange(key_layout.RUN, start), limit=PAGE)
        for entry in entries:
            if len(removed) < limit:
                event = await desk.run_unit(partial(_remove, desk=desk, entry=entry))
                removed += [event] if event is not None else []
        if len(entries) < PAGE:
            break
        start = entries[-1].key.sort + "\0"
    return removed


async def _remove(unit: UnitOfWork, *, desk: StoreContext, entry: StoredItem) -> EventRecord | None:
    job_id, token = entry.value["job_id"], entry.value["token"]
    if await unit.get(key_layout.pointer(job_id)) is not None or await unit.get(entry.key) is None:
        return None
    unit.require(key_layout.pointer(job_id))
    left = await unit.get(key_layout.artifacts_key(job_id, token))
    run = runs.record(entry.value, None, tuple(left["artifacts"]) if left else ())
    unit.delete(entry.key)
    if left is not None:
        unit.delete(key_layout.artifacts_key(job_id, token))
    number = await job_repository.append_event(
        unit,
        EventKind.ORPHAN_RUN_REMOVED,
        at=desk.now(),
        run_id=run.run_id,
        token=token,
        reason=run.status.value,
        detail=json.dumps(asdict(run), default=str),
    )
    told = await unit.get(key_layout.stream_key(number))
    assert told is not None
    return runs.event(told)


async def prune(desk: StoreContext, *, older_than: timedelta, limit: int) -> int:
    """Delete chains that ended that long ago, the earliest first; how many jobs went."""
    await complete_all(desk)
    before = desk.now() - older_than
    gone, chains, start = 0, 0, ""
    while chains < limit:
        span = KeyRange(key_layout.ENDED, start, key_layout.deadline_sort(before, -(1 << 62)))
        entries = await desk.engine.range(span, limit=PAGE)
        for entry in entries:
            if chains < limit and entry.value["tip"] and entry.value["state"] in PRUNED:
                work = partial(_prune, desk=desk, job_id=entry.value["id"], before=before)
                jobs = await desk.run_unit(work)
                gone, chains = gone + jobs, chains + bool(jobs)
        if len(entries) < PAGE:
            break
        start = entries[-1].key.sort + "\0"
    await _forget_groups(desk, before)
    await positions.forget_left(desk)
    return gone


async def _prune(unit: UnitOfWork, *, desk: StoreContext, job_id: str, before: datetime) -> int:
    chain = await chain_of(unit, job_id)
    if not chain or chain[-1].job.id != job_id or not _is_old(chain[-1], before):
        return 0
    group_id = chain[0].member
    group = None if group_id is None else await groups.load(unit, group_id)
    if group is not None and not group.is_over:
        return 0
    until = None if desk.tombstones is None else desk.now() + desk.tombstones
    for kept in reversed(chain):
        await forget(unit, kept, until)
    for kept in chain[:-1]:  # links that are followed: who could still change them?
        unit.skip_version_check(key_layout.job_key(kept.job))
        unit.skip_version_check(key_layout.pointer(kept.job.id))
    if group is not None:
        left = group.present - sum(kept.member is not None for kept in chain)
        groups.save(unit, group, replace(group, present=left) if left > 0 else None)
    return len(chain)


def _is_old(tip: JobRecord, before: datetime) -> bool:
    ended = tip.job.finished_at
    return tip.job.state in PRUNED and ended is not None and ended < before


async def forget(unit: UnitOfWork, kept: JobRecord, until: datetime | None = None) -> None:
    """The job with its runs and events; what it was deduplicated by stays, as a tombstone."""
    job_id = kept.job.id
    job_repository.save(unit, kept, None)
    if kept.key is not None:
        unit.put(key_layout.dedupe_key(kept.key), tombstone(kept, kept.key, until))
    for part in (key_layout.RUN, key_layout.ARTIFACTS):
        for entry in await unit.range(key_layout.of_job(part, job_id), limit=ALL):
            unit.delete(entry.key)
    for entry in await unit.range(key_layout.of_job(key_layout.EVENT, job_id), limit=ALL):
        unit.delete(entry.key)
        unit.delete(key_layout.stream_key(entry.value["id"]))
    held_by = None if kept.reservation is None else await reservations.load(unit, kept.reservation)
    if held_by is not None and not held_by.reservation.is_active:
        reservations.forget(unit, held_by)


async def _forget_groups(desk: StoreContext, before: datetime) -> None:
    """Groups that were stopped before they were complete, and have nobody left."""
    for found in await groups.listed(UnitOfWork(desk.engine), groups.EMPTIED, limit=ALL):
        if found.present == 0 and found.group.created_at < before:
            await desk.run_unit(partial(_forget_group, group_id=found.group.id))


async def _forget_group(unit: UnitOfWork, *, group_id: str) -> None:
    kept = await groups.load(unit, group_id)
    if kept is not None and kept.present == 0:
        groups.save(unit, kept, None)

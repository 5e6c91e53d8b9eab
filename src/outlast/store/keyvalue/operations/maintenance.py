"""Maintenance check, recovery reads, orphan removal and pruning."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from outlast.clock import to_micros
from outlast.core.delivery import Delivery
from outlast.core.event import EventKind, EventRecord
from outlast.core.job import Job
from outlast.core.state import State
from outlast.core.worker import MIN_REGISTRATION_AGE, SUPERVISED_BOOT_PREFIX
from outlast.process_identity import proved_dead
from outlast.store.contract.maintenance import MaintenanceDue
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange, StoredItem
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.locks import KeyValueLocks
from outlast.store.keyvalue.operations import positions
from outlast.store.keyvalue.operations.base import KeyValueOperations, requires_open_store
from outlast.store.keyvalue.operations.jobs import chain_of, expired_lease_ranges
from outlast.store.keyvalue.operations.workers import delete_old_workers
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


class KeyValueMaintenanceOperations(KeyValueOperations):
    """Maintenance check, recovery reads, orphan removal and pruning."""

    async def maintenance_due(self, *, abandoned: timedelta) -> MaintenanceDue:
        """Return which maintenance is due, by a few short reads."""
        context = self._context
        late, old = to_micros(context.now()), to_micros(context.now() - abandoned)
        names, queued, overdue, closing, filling, listed = await context.engine.ranges(
            [
                (KeyRange(key_layout.QUEUE_NAME), ALL),
                (KeyRange(key_layout.QUEUE), ALL),
                (KeyRange(key_layout.DEADLINE, end=key_layout.number(late)), 1),
                (KeyRange(groups.CLOSING), 1),
                (KeyRange(groups.FILLING, end=key_layout.number(old)), 1),
                (KeyRange(key_layout.WORKER), ALL),
            ]
        )
        over = [
            span for entry in names for span in expired_lease_ranges(context, entry.value["name"])
        ]
        lapsed = await context.engine.ranges([(span, 1) for span in over]) if over else []
        return MaintenanceDue(
            expired_leases=any(lapsed),
            missed_deadlines=bool(overdue),
            reservations=any("reservation" in entry.value for entry in queued),
            groups=bool(closing or filling),
            dead_workers=await _is_deserted(context, self._locks, listed),
        )

    async def running_under_other_boots(
        self, *, besides: str, instance_id: str | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """Return running jobs of other boots, by number."""
        context = self._context

        async def work(unit: UnitOfWork) -> list[Job]:
            open_runs = [
                entry.value
                for name in await queues.names(unit)
                for entry in await queues.open_entries(unit, name, limit=ALL)
            ]
            others = [v for v in open_runs if v["boot"] != besides and v["seq"] > after]
            own = [v for v in others if instance_id is None or v["holder"] == instance_id]
            own.sort(key=lambda value: value["seq"])
            ids = list(
                dict.fromkeys(value["id"] for value in own)
            )  # a renewed lease may be read twice
            found = await job_repository.load_many(unit, ids[:limit])
            return [record.job for record in found if record is not None and record.is_open]

        return await context.run_unit(work)

    async def detached_jobs(self, *, after: int = 0, limit: int) -> list[Job]:
        """Return jobs in no state, by number; reads all jobs."""
        context = self._context
        return await _listed(context, lambda record: record.is_detached, after, limit)

    async def missing_successors(self, *, after: int = 0, limit: int) -> list[Job]:
        """Return failed chain jobs without their successor; reads all jobs."""
        context = self._context
        return await _listed(context, _has_no_successor, after, limit)

    @requires_open_store
    async def remove_orphans(self, *, limit: int) -> list[EventRecord]:
        """Delete closed runs whose job is gone; each leaves a copy in the event returned."""
        context = self._context
        removed: list[EventRecord] = []
        start = ""
        while len(removed) < limit:
            entries = await context.engine.range(KeyRange(key_layout.RUN, start), limit=PAGE)
            for entry in entries:
                if len(removed) < limit:
                    event = await context.run_unit(partial(_remove, context=context, entry=entry))
                    removed += [event] if event is not None else []
            if len(entries) < PAGE:
                break
            start = entries[-1].key.sort + "\0"
        return removed

    @requires_open_store
    async def prune(self, *, older_than: timedelta, limit: int) -> int:
        """Delete chains that ended `older_than` ago, the earliest first; return how many jobs.

        Each chain is deleted in one unit of work. Old workers and emptied groups go with them.
        """
        context = self._context
        await complete_all(context)
        before = context.now() - older_than
        gone, chains, start = 0, 0, ""
        while chains < limit:
            span = KeyRange(key_layout.ENDED, start, key_layout.deadline_sort(before, -(1 << 62)))
            entries = await context.engine.range(span, limit=PAGE)
            for entry in entries:
                if chains < limit and entry.value["tip"] and entry.value["state"] in PRUNED:
                    work = partial(_prune, context=context, job_id=entry.value["id"], before=before)
                    jobs = await context.run_unit(work)
                    gone, chains = gone + jobs, chains + bool(jobs)
            if len(entries) < PAGE:
                break
            start = entries[-1].key.sort + "\0"
        await _forget_groups(context, before)
        await positions.forget_left(context)
        await delete_old_workers(context, min(before, context.now() - MIN_REGISTRATION_AGE))
        await _delete_events_of_no_job(context, before, limit)
        return gone


async def _delete_events_of_no_job(context: StoreContext, before: datetime, limit: int) -> None:
    """Delete the old ones of the oldest `limit` events of no job, each in one unit of work."""
    span = key_layout.of_job(key_layout.EVENT, key_layout.NO_JOB)
    entries = await context.engine.range(span, limit=limit)
    keys = [key_layout.stream_key(entry.value["id"]) for entry in entries]
    for entry, event in zip(entries, await context.engine.get(keys), strict=True):
        if event is not None and runs.event(event.value).at >= before:
            break  # the later ones are newer
        await context.run_unit(partial(_delete_event, entry=entry))


async def _delete_event(unit: UnitOfWork, *, entry: StoredItem) -> None:
    for key in (entry.key, key_layout.stream_key(entry.value["id"])):
        if await unit.get(key) is not None:
            unit.delete(key)


async def _is_deserted(
    context: StoreContext, locks: KeyValueLocks, listed: Sequence[StoredItem]
) -> bool:
    """Return True if a registered worker has open runs, its lock is free and its death proved."""
    boots = {entry.value["boot_id"] for entry in listed if "stopped_at" not in entry.value}
    trees = {boot for boot in boots if boot.startswith(SUPERVISED_BOOT_PREFIX)}
    gone = await locks.known_dead(proved_dead(trees))
    return bool(gone) and await _has_runs(context, locks, gone)


async def _has_runs(context: StoreContext, locks: KeyValueLocks, gone: Collection[str]) -> bool:
    unit = UnitOfWork(context.engine)
    found = [await queues.open_entries(unit, name, limit=ALL) for name in await queues.names(unit)]
    holding = {entry.value["boot"] for entries in found for entry in entries}
    locks.mark_released(set(gone) - holding)
    return bool(holding.intersection(gone))


def _has_no_successor(record: JobRecord) -> bool:
    is_failed = record.job.delivery is Delivery.LINKED and record.job.state is State.FAILED
    return is_failed and record.successor is None


async def _listed(
    context: StoreContext, fits: Callable[[JobRecord], bool], after: int, limit: int
) -> list[Job]:
    found: list[Job] = []
    while len(found) < limit:
        page = await context.run_unit(partial(job_repository.all_jobs, after=after, limit=PAGE))
        found += [record.job for record in page if fits(record)]
        if not page:
            break
        after = page[-1].job.seq
    return found[:limit]


async def _remove(
    unit: UnitOfWork, *, context: StoreContext, entry: StoredItem
) -> EventRecord | None:
    job_id, token = entry.value["job_id"], entry.value["token"]
    if await unit.get(key_layout.pointer(job_id)) is not None or await unit.get(entry.key) is None:
        return None
    unit.require(key_layout.pointer(job_id))
    left = await unit.get(key_layout.artifacts_key(job_id, token))
    run = runs.to_run(entry.value, None, tuple(left["artifacts"]) if left else ())
    unit.delete(entry.key)
    if left is not None:
        unit.delete(key_layout.artifacts_key(job_id, token))
    number = await job_repository.append_event(
        unit,
        EventKind.ORPHAN_RUN_REMOVED,
        at=context.now(),
        run_id=run.run_id,
        token=token,
        reason=run.status.value,
        detail=json.dumps(asdict(run), default=str),
    )
    told = await unit.get(key_layout.stream_key(number))
    assert told is not None
    return runs.event(told)


async def _prune(unit: UnitOfWork, *, context: StoreContext, job_id: str, before: datetime) -> int:
    chain = await chain_of(unit, job_id)
    if not chain or chain[-1].job.id != job_id or not _is_old(chain[-1], before):
        return 0
    group_id = chain[0].member
    group = None if group_id is None else await groups.load(unit, group_id)
    if group is not None and not group.is_over:
        return 0
    until = None if context.tombstones is None else context.now() + context.tombstones
    for record in reversed(chain):
        await delete_job(unit, record, until)
    for record in chain[:-1]:  # jobs with a successor never change
        unit.skip_version_check(key_layout.job_key(record.job))
        unit.skip_version_check(key_layout.pointer(record.job.id))
    if group is not None:
        left = group.present - sum(record.member is not None for record in chain)
        groups.save(unit, group, replace(group, present=left) if left > 0 else None)
    return len(chain)


def _is_old(tip: JobRecord, before: datetime) -> bool:
    ended = tip.job.finished_at
    return tip.job.state in PRUNED and ended is not None and ended < before


async def delete_job(unit: UnitOfWork, record: JobRecord, until: datetime | None = None) -> None:
    """Delete a job with its runs and events; its dedupe key stays as a tombstone."""
    job_id = record.job.id
    job_repository.save(unit, record, None)
    if record.key is not None:
        unit.put(key_layout.dedupe_key(record.key), tombstone(record, record.key, until))
    for part in (key_layout.RUN, key_layout.ARTIFACTS):
        for entry in await unit.range(key_layout.of_job(part, job_id), limit=ALL):
            unit.delete(entry.key)
    for entry in await unit.range(key_layout.of_job(key_layout.EVENT, job_id), limit=ALL):
        unit.delete(entry.key)
        unit.delete(key_layout.stream_key(entry.value["id"]))
    held_by = (
        None if record.reservation is None else await reservations.load(unit, record.reservation)
    )
    if held_by is not None and not held_by.reservation.is_active:
        reservations.forget(unit, held_by)


async def _forget_groups(context: StoreContext, before: datetime) -> None:
    """Delete groups that were stopped before they were sealed and have no members left."""
    for found in await groups.listed(UnitOfWork(context.engine), groups.EMPTIED, limit=ALL):
        if found.present == 0 and found.group.created_at < before:
            await context.run_unit(partial(_forget_group, group_id=found.group.id))


async def _forget_group(unit: UnitOfWork, *, group_id: str) -> None:
    record = await groups.load(unit, group_id)
    if record is not None and record.present == 0:
        groups.save(unit, record, None)

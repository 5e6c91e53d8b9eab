"""Maintenance check, recovery reads, orphan removal and pruning."""

import json
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from outlast.clock import to_micros
from outlast.core.delivery import Delivery
from outlast.core.event import EventKind, EventRecord
from outlast.core.job import Job
from outlast.core.state import State
from outlast.core.worker import MIN_REGISTRATION_AGE, SUPERVISED_BOOT_PREFIX
from outlast.errors import StoreMoved, StoreSealed
from outlast.process_identity import proved_dead
from outlast.store.contract.jobs import EndedJob
from outlast.store.contract.maintenance import MaintenanceDue
from outlast.store.keyvalue import intents, key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange, StoredItem
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.locks import KeyValueLocks
from outlast.store.keyvalue.operations import key_windows, positions, quarantine
from outlast.store.keyvalue.operations.base import KeyValueOperations, requires_open_store
from outlast.store.keyvalue.operations.open_leases import expired_ranges
from outlast.store.keyvalue.operations.pruning import PRUNED, try_prune
from outlast.store.keyvalue.operations.workers import delete_old_workers
from outlast.store.keyvalue.repositories import (
    groups,
    queues,
    runs,
)
from outlast.store.keyvalue.repositories import (
    jobs as job_repository,
)
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork

log = logging.getLogger("outlast.store")

ALL: Final = 1_000_000
PAGE: Final = 200


class KeyValueMaintenanceOperations(KeyValueOperations):
    """Maintenance check, recovery reads, orphan removal and pruning."""

    async def maintenance_due(self, *, abandoned: timedelta) -> MaintenanceDue:
        """Return which maintenance is due, by a few short reads."""
        context = self._context
        late, old = to_micros(context.now()), to_micros(context.now() - abandoned)
        names, queued, overdue, closing, filling, listed, aside = await context.engine.ranges(
            [
                (KeyRange(key_layout.QUEUE_NAME), ALL),
                (KeyRange(key_layout.QUEUE), ALL),
                (KeyRange(key_layout.DEADLINE, end=key_layout.number(late)), 1),
                (KeyRange(groups.CLOSING), 1),
                (KeyRange(groups.FILLING, end=key_layout.number(old)), 1),
                (KeyRange(key_layout.WORKER), ALL),
                (KeyRange(key_layout.QUARANTINE), 1),
            ]
        )
        if aside:
            await self._take_back()
        over = [span for entry in names for span in expired_ranges(context, entry.value["name"])]
        lapsed = await context.engine.ranges([(span, 1) for span in over]) if over else []
        return MaintenanceDue(
            expired_leases=any(lapsed),
            missed_deadlines=bool(overdue),
            reservations=any("reservation" in entry.value for entry in queued),
            groups=bool(closing or filling),
            dead_workers=await _is_deserted(context, self._locks, listed),
        )

    async def _take_back(self) -> None:
        """Take back quarantined jobs that are sound again, unless the store is in transfer."""
        with suppress(StoreSealed, StoreMoved):
            await quarantine.take_back(await self._gated())

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
            return await job_repository.whole_jobs(unit, [r for r in found if r and r.is_open])

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
    async def remove_orphans(self, context: StoreContext, *, limit: int) -> list[EventRecord]:
        """Delete closed runs whose job is gone; each leaves a copy in the event returned."""
        removed: list[EventRecord] = []
        start = ""
        while len(removed) < limit:
            entries = await context.engine.range(KeyRange(key_layout.RUN, start), limit=PAGE)
            for entry in (await _without_job(context, entries))[: limit - len(removed)]:
                event = await context.run_unit(partial(_remove, context=context, entry=entry))
                removed += [event] if event is not None else []
            if len(entries) < PAGE:
                break
            start = entries[-1].key.sort + "\0"
        return removed

    @requires_open_store
    async def prune(
        self, context: StoreContext, *, older_than: timedelta, limit: int, chains: bool = True
    ) -> int:
        """Delete chains that ended `older_than` ago, the earliest first; return how many jobs.

        A large chain is deleted in steps. One that cannot be deleted is logged and stops no other.
        Old workers and emptied groups go with them.
        """
        await complete_all(context)
        before = context.now() - older_than
        gone, done, failed, start = 0, 0, 0, ""
        while chains and done < limit:
            span = KeyRange(key_layout.ENDED, start, key_layout.deadline_sort(before, -(1 << 62)))
            entries = await context.engine.range(span, limit=PAGE)
            for entry in entries:
                if done < limit and entry.value["tip"] and entry.value["state"] in PRUNED:
                    jobs = await try_prune(context, entry.value["id"], before)
                    failed += jobs is None
                    gone, done = gone + (jobs or 0), done + bool(jobs)
            if len(entries) < PAGE:
                break
            start = entries[-1].key.sort + "\0"
        if failed:
            log.warning("finished jobs that could not be pruned: %s", failed)
        await _forget_groups(context, before)
        await positions.forget_left(context)
        await intents.forget_pages(context.engine)
        await delete_old_workers(context, min(before, context.now() - MIN_REGISTRATION_AGE))
        await key_windows.delete_ended(context, limit)
        await _delete_events_of_no_job(context, before, limit)
        return gone

    async def ended_jobs(
        self, *, older_than: timedelta, after: EndedJob | None, limit: int
    ) -> list[EndedJob]:
        """Return jobs that ended well that long ago, the earliest first, behind `after`."""
        context = self._context
        before = key_layout.deadline_sort(context.now() - older_than, -(1 << 62))
        start = "" if after is None else key_layout.deadline_sort(after.at, after.seq) + "\0"
        found: list[EndedJob] = []
        while len(found) < limit:
            span = KeyRange(key_layout.ENDED, start, before)
            entries = await context.engine.range(span, limit=PAGE)
            found += await context.run_unit(partial(_ended_jobs, entries=entries))
            if len(entries) < PAGE:
                break
            start = entries[-1].key.sort + "\0"
        return found[:limit]

    @requires_open_store
    async def prune_jobs(
        self, context: StoreContext, jobs: Sequence[EndedJob], *, older_than: timedelta
    ) -> int:
        """Delete the chains that end with these jobs; return how many jobs."""
        before = context.now() - older_than
        gone = [await try_prune(context, job.id, before) for job in jobs]
        return sum(jobs or 0 for jobs in gone)


async def _ended_jobs(unit: UnitOfWork, *, entries: Sequence[StoredItem]) -> list[EndedJob]:
    wanted = [each.value["id"] for each in entries if each.value["state"] in PRUNED]
    jobs = [each.job for each in await job_repository.load_many(unit, wanted) if each is not None]
    return [
        EndedJob(id=job.id, type=job.type, at=job.finished_at, seq=job.seq)
        for job in jobs
        if job.finished_at is not None
    ]


async def _delete_events_of_no_job(context: StoreContext, before: datetime, limit: int) -> None:
    """Delete the old ones of the oldest `limit` events of no job, each in one unit of work."""
    span = key_layout.of_job(key_layout.EVENT, key_layout.NO_JOB)
    entries = await context.engine.range(span, limit=limit)
    keys = [key_layout.stream_key(entry.value["id"]) for entry in entries]
    for entry, event in zip(entries, await context.engine.get(keys), strict=True):
        is_sound = event is not None and event.damage is None
        if event is not None and is_sound and runs.event(event.value).at >= before:
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
    last: int | None = after
    while len(found) < limit and last is not None:
        jobs, last = await context.run_unit(partial(_fitting, fits=fits, after=last))
        found += jobs
    return found[:limit]


async def _fitting(
    unit: UnitOfWork, *, fits: Callable[[JobRecord], bool], after: int
) -> tuple[list[Job], int | None]:
    """Return the fitting jobs of the next page, and its last number; None behind the last page."""
    page = await job_repository.all_jobs(unit, after=after, limit=PAGE)
    jobs = await job_repository.whole_jobs(unit, [record for record in page if fits(record)])
    return jobs, page[-1].job.seq if page else None


async def _without_job(context: StoreContext, entries: Sequence[StoredItem]) -> list[StoredItem]:
    """Return the runs whose job is missing, by one read."""
    jobs = await context.engine.get([key_layout.pointer(e.value["job_id"]) for e in entries])
    return [entry for entry, job in zip(entries, jobs, strict=True) if job is None]


async def _remove(
    unit: UnitOfWork, *, context: StoreContext, entry: StoredItem
) -> EventRecord | None:
    job_id, token = entry.value["job_id"], entry.value["token"]
    if await unit.get(key_layout.pointer(job_id)) is not None or await unit.get(entry.key) is None:
        return None
    unit.require(key_layout.pointer(job_id))
    left = await unit.get(key_layout.artifacts_key(job_id, token))
    run = runs.to_run(entry.value, None, tuple(left["artifacts"]) if left else ())
    [run] = await runs.whole(unit, [run])
    for key in runs.keys_of(entry):
        unit.delete(key)
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


async def _forget_groups(context: StoreContext, before: datetime) -> None:
    """Delete groups that were stopped before they were sealed and have no members left."""
    for found in await groups.listed(UnitOfWork(context.engine), groups.EMPTIED, limit=ALL):
        if found.present == 0 and found.group.created_at < before:
            await context.run_unit(partial(_forget_group, group_id=found.group.id))


async def _forget_group(unit: UnitOfWork, *, group_id: str) -> None:
    record = await groups.load(unit, group_id)
    if record is not None and record.present == 0:
        groups.save(unit, record, None)

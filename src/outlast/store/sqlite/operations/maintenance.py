"""Maintenance: the check whether any is due, recovery reads, orphan removal, pruning."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from outlast.clock import from_micros, to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventKind, EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.worker import MIN_REGISTRATION_AGE, SUPERVISED_BOOT_PREFIX
from outlast.store.contract.jobs import EndedJob
from outlast.store.contract.maintenance import MaintenanceDue
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.operations.base import SqliteOperations, require_open_store
from outlast.store.sqlite.operations.workers import prune_workers
from outlast.store.sqlite.writer import WriteTransaction

_EARLIEST: Final = -(1 << 62)
"""Before every end of a job, in microseconds."""


class SqliteMaintenanceOperations(SqliteOperations):
    """What recovery and periodic maintenance read and write."""

    async def maintenance_due(self, *, abandoned: timedelta) -> MaintenanceDue:
        """Return which kinds of maintenance have work."""
        now = to_micros(self._clock.now())
        values = {"now": now, "mono": self._clock.monotonic()}
        before = now - abandoned // MICROSECOND
        [found] = await self._reader.rows("maintenance.due", before=before, **values)
        leases, deadlines, reservations, groups = map(bool, found)
        return MaintenanceDue(
            expired_leases=leases,
            missed_deadlines=deadlines,
            reservations=reservations,
            groups=groups,
            dead_workers=await self._has_dead_workers(),
        )

    async def expired_leases(self, *, limit: int) -> list[Job]:
        """Return running jobs whose lease has expired, the longest expired first."""
        mono = self._clock.monotonic()
        return await self._jobs("maintenance.expired_leases", mono=mono, limit=limit)

    async def missed_start_deadline(self, *, limit: int) -> list[Job]:
        """Return queued jobs past their start deadline, the earliest first."""
        now = to_micros(self._clock.now())
        return await self._jobs("maintenance.missed_start_deadline", now=now, limit=limit)

    async def running_under_other_boots(
        self, *, besides: str, instance_id: str | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """Return running jobs whose lease holder has another boot id than `besides`."""
        values = {"besides": besides, "instance": instance_id, "after": after}
        return await self._jobs("maintenance.other_boots", limit=limit, **values)

    async def detached_jobs(self, *, after: int = 0, limit: int) -> list[Job]:
        """Return jobs that are in no state table."""
        return await self._jobs("maintenance.detached", after=after, limit=limit)

    async def missing_successors(self, *, after: int = 0, limit: int) -> list[Job]:
        """Return failed chain jobs without the successor they owe."""
        return await self._jobs("maintenance.missing_successors", after=after, limit=limit)

    async def remove_orphans(self, *, limit: int) -> list[EventRecord]:
        """Delete closed runs whose job is gone; return the events that hold their copies.

        A reader scans the runs, so that the scan takes no write lock.
        """
        found = await self._reader.rows("maintenance.orphans", limit=limit)
        orphans = [job_rows.orphan_run(row) for row in found]
        removed = await self._writer.submit(remove_orphans, orphans) if orphans else []
        return [event for event in removed if event is not None]

    async def prune(self, *, older_than: timedelta, limit: int, chains: bool = True) -> int:
        """Delete up to `limit` chains that ended that long ago; return the number of jobs."""
        deleted: int = (await self._writer.submit(prune, [(older_than, limit, chains)]))[0]
        return deleted

    async def ended_jobs(
        self, *, older_than: timedelta, after: EndedJob | None, limit: int
    ) -> list[EndedJob]:
        """Return jobs that ended well that long ago, the earliest first, behind `after`."""
        before = to_micros(self._clock.now()) - older_than // MICROSECOND
        at, seq = (_EARLIEST, 0) if after is None else (to_micros(after.at), after.seq)
        values = {"at": at, "seq": seq, "before": before, "limit": limit}
        rows = await self._reader.rows("maintenance.ended_jobs", **values)
        return [
            EndedJob(id=JobId(job_id), type=kind, at=from_micros(at), seq=seq)
            for seq, at, job_id, kind in rows
        ]

    async def prune_jobs(self, jobs: Sequence[EndedJob], *, older_than: timedelta) -> int:
        """Delete the chains that end with these jobs; return the number of jobs."""
        asked = to_json_param([job.seq for job in jobs])
        deleted: int = (await self._writer.submit(prune_among, [(asked, older_than)]))[0]
        return deleted

    async def _has_dead_workers(self) -> bool:
        """Return whether a supervised worker holds runs though none of its processes is alive."""
        pattern = f"{SUPERVISED_BOOT_PREFIX}*"
        found = await self._reader.rows("maintenance.boots_with_open_runs", pattern=pattern)
        return bool(found and await self.free_locks([boot for (boot,) in found]))


@require_open_store
def remove_orphans(
    tx: WriteTransaction, orphans: Sequence[Mapping[str, Any]]
) -> list[EventRecord | None]:
    """Copy each orphan run to an event and delete it; None for one that is gone already."""
    return [_remove_orphan(tx, run) for run in orphans]


@require_open_store
def prune(tx: WriteTransaction, items: Sequence[tuple[timedelta, int, bool]]) -> list[int]:
    """Delete ended chains, their reservations, emptied groups and old workers."""
    return [
        _prune_before(tx, tx.now - older_than // MICROSECOND, limit, chains=chains)
        for older_than, limit, chains in items
    ]


@require_open_store
def prune_among(tx: WriteTransaction, items: Sequence[tuple[str, timedelta]]) -> list[int]:
    """Delete the chains that end with some of these jobs, with what belongs to them."""
    return [
        _prune_selected(
            tx, "maintenance.select_among", before=tx.now - older_than // MICROSECOND, jobs=asked
        )
        for asked, older_than in items
    ]


def _remove_orphan(tx: WriteTransaction, run: Mapping[str, Any]) -> EventRecord | None:
    detail = to_json_param(run)
    values = {"run_id": run["run_id"], "now": tx.now, "detail": detail}
    recorded = tx.run("maintenance.record_orphan", **values)
    if recorded.rowcount <= 0:
        return None
    event_id = recorded.lastrowid or 0
    tx.run("maintenance.delete_orphan", run_id=run["run_id"])
    return EventRecord(
        id=event_id,
        at=from_micros(tx.now),
        job_id=None,
        run_id=run["run_id"],
        kind=EventKind.ORPHAN_RUN_REMOVED,
        token=run["token"],
        reason=run["status"],
        detail=detail,
    )


def _prune_selected(tx: WriteTransaction, statement: str, **values: Any) -> int:
    """Delete the chains that a statement selects; return the number of jobs."""
    tx.run("claim.clear")
    if tx.run(statement, **values).rowcount <= 0:
        return 0
    groups = tx.value("maintenance.groups_of_selected")
    tx.run("reservations.prune")
    deleted: int = tx.run("maintenance.delete_selected").rowcount
    if groups != "[]":
        tx.run("maintenance.delete_groups", groups=groups)
    return deleted


def _prune_before(tx: WriteTransaction, before: int, limit: int, *, chains: bool) -> int:
    deleted = 0
    if chains:
        deleted = _prune_selected(tx, "maintenance.select_ended_chains", before=before, limit=limit)
    tx.run("maintenance.delete_empty_groups", before=before)
    tx.run("maintenance.delete_events_of_no_job", before=before, limit=limit)
    tx.run("maintenance.delete_ended_keys", now=tx.now, limit=limit)
    prune_workers(tx, min(before, tx.now - MIN_REGISTRATION_AGE // MICROSECOND), limit)
    return deleted

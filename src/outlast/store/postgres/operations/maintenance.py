"""Maintenance: one cheap check, recovery reads, orphan removal and prune."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from outlast.clock import from_micros, to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventRecord
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.worker import MIN_REGISTRATION_AGE, SUPERVISED_BOOT_PREFIX
from outlast.process_identity import process_scope, proved_dead
from outlast.store.contract.jobs import EndedJob
from outlast.store.contract.maintenance import MaintenanceDue
from outlast.store.postgres.operations.base import PostgresOperations, require_open_store
from outlast.store.postgres.operations.jobs import full_scan
from outlast.store.postgres.operations.workers import clear_registrations, delete_workers
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import to_json_param

_DELETES: Final = (
    "maintenance.delete_reservations",
    "maintenance.delete_jobs",
    "maintenance.delete_runs",
    "maintenance.delete_ends",
    "maintenance.delete_events",
)


_EARLIEST: Final = -(1 << 62)
"""Before every end of a job, in microseconds."""


class PostgresMaintenanceOperations(PostgresOperations):
    """The maintenance check, recovery reads, orphan removal and prune."""

    async def maintenance_due(self, *, abandoned: timedelta) -> MaintenanceDue:
        """Return which kinds of maintenance have work, by one statement."""
        values: dict[str, Any] = {
            "now": self._now,
            "mono": self._mono,
            "abandoned": abandoned // MICROSECOND,
            "boot_prefix": f"{SUPERVISED_BOOT_PREFIX}{process_scope()}.",
        }
        [(expired, missed, reservations, groups, boots)] = await self._pool.rows(
            "maintenance.due", **values
        )
        return MaintenanceDue(
            expired_leases=expired,
            missed_deadlines=missed,
            reservations=reservations,
            groups=groups,
            dead_workers=bool(proved_dead(boots)),
        )

    async def expired_leases(self, *, limit: int) -> list[Job]:
        """Return running jobs with an expired lease, longest expired first."""
        return await self._jobs("maintenance.expired_leases", mono=self._mono, limit=limit)

    async def missed_start_deadline(self, *, limit: int) -> list[Job]:
        """Return queued jobs past their start deadline, earliest first."""
        return await self._jobs("maintenance.missed_start_deadline", now=self._now, limit=limit)

    async def running_under_other_boots(
        self, *, besides: str, instance_id: str | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """Return running jobs held under another boot id than `besides`, by `seq`."""
        values = {"besides": besides, "instance": instance_id, "after": after}
        return await self._jobs("maintenance.running_under_other_boots", limit=limit, **values)

    async def detached_jobs(self, *, after: int = 0, limit: int) -> list[Job]:
        """Return jobs that are in no state table, by `seq`."""
        read = partial(full_scan, "maintenance.detached", after=after, limit=limit)
        return [job_rows.job(tuple(row)) for row in await self._pool.in_snapshot(read)]

    async def missing_successors(self, *, after: int = 0, limit: int) -> list[Job]:
        """Return failed `linked` jobs without a successor, by `seq`."""
        return await self._jobs("maintenance.missing_successors", after=after, limit=limit)

    async def remove_orphans(self, *, limit: int) -> list[EventRecord]:
        """Delete closed runs without a job; return the events that hold their copies."""
        found = await self._pool.rows("maintenance.find_orphans", limit=limit)
        runs = [job_rows.orphan_run(tuple(row)) for row in found]
        operation = require_open_store(partial(_remove_orphans, runs=runs))
        return await self._pool.transact(operation) if runs else []

    async def prune(self, *, older_than: timedelta, limit: int, chains: bool = True) -> int:
        """Delete chains that ended before `older_than`; return the number of jobs."""
        prune = partial(_prune, older_than=older_than, limit=limit, chains=chains)
        pruned = await self._pool.transact(require_open_store(prune))
        # A transaction of its own: it waits for claims, and must hold no lock of a job meanwhile.
        kept = max(older_than, MIN_REGISTRATION_AGE)
        delete = partial(delete_workers, older_than=kept, limit=limit)
        await self._pool.transact(require_open_store(delete))
        return pruned

    async def ended_jobs(
        self, *, older_than: timedelta, after: EndedJob | None, limit: int
    ) -> list[EndedJob]:
        """Return jobs that ended well that long ago, the earliest first, behind `after`."""
        at, seq = (_EARLIEST, 0) if after is None else (to_micros(after.at), after.seq)
        age = older_than // MICROSECOND
        values = {"at": at, "seq": seq, "now": self._now, "age": age, "limit": limit}
        rows = await self._pool.rows("maintenance.ended_jobs", **values)
        return [
            EndedJob(id=JobId(str(job_id)), type=kind, at=from_micros(at), seq=seq)
            for job_id, at, seq, kind in rows
        ]

    async def prune_jobs(self, jobs: Sequence[EndedJob], *, older_than: timedelta) -> int:
        """Delete the chains that end with these jobs; return the number of jobs."""
        asked = [job.id for job in jobs]
        work = partial(_prune_among, jobs=asked, older_than=older_than)
        return await self._pool.transact(require_open_store(work))


async def _remove_orphans(
    work: PostgresUnitOfWork, runs: Sequence[Mapping[str, Any]]
) -> list[EventRecord]:
    """Copy each run to an event and delete it, unless another transaction did."""
    removed: list[EventRecord] = []
    for run in runs:
        target = {"job": run["job"], "token": run["token"]}
        events = await work.rows(
            "maintenance.remove_orphan", now=work.now, detail=to_json_param(run), **target
        )
        removed += [job_rows.event(tuple(row)) for row in events]
    return removed


async def _prune_among(work: PostgresUnitOfWork, jobs: Sequence[str], older_than: timedelta) -> int:
    before = work.now - older_than // MICROSECOND
    roots = await work.rows("maintenance.prunable_among", jobs=jobs, before=before)
    return await _delete_chains(work, sorted({root for (root,) in roots})) if roots else 0


async def _prune(
    work: PostgresUnitOfWork, older_than: timedelta, limit: int, *, chains: bool
) -> int:
    before = work.now - older_than // MICROSECOND
    pruned = 0
    if chains:
        roots = await work.rows("maintenance.prunable_chains", before=before, limit=limit)
        pruned = await _delete_chains(work, sorted({root for (root,) in roots})) if roots else 0
    await work.run("maintenance.delete_empty_groups", before=before)
    await work.run("maintenance.delete_events_of_no_job", before=before, limit=limit)
    await work.run("maintenance.delete_ended_keys", now=work.now, limit=limit)
    await clear_registrations(work, min(before, work.now - MIN_REGISTRATION_AGE // MICROSECOND))
    return pruned


async def _delete_chains(work: PostgresUnitOfWork, roots: Sequence[str]) -> int:
    found = await work.rows("maintenance.chain_jobs", roots=roots)
    live = {root for root, _, _, has_ended in found if not has_ended}  # retried meanwhile
    found = [row for row in found if row[0] not in live]
    jobs = sorted(row[1] for row in found)
    for statement in _DELETES:
        await work.run(statement, jobs=jobs)
    groups = sorted({row[2] for row in found if row[2] is not None})
    if groups:
        await work.run("maintenance.delete_groups", groups=groups)
    return len(jobs)

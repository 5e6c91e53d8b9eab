"""Periodic maintenance: expired leases, missed start deadlines, reservations, groups, history."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import compress
from pathlib import Path

from outlast.clock import Clock, SystemClock
from outlast.config import Settings
from outlast.core.decide import decide
from outlast.core.event import Event, Lost, Misfired
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run import Lease
from outlast.core.state import Loss
from outlast.errors import OperatorError
from outlast.store.contract import Store, check_maintenance
from outlast.store.contract.maintenance import MaintenanceDue
from outlast.worker import log_events
from outlast.worker.command_logs import remove_expired_logs
from outlast.worker.maintenance.clock_watch import ClockWatch
from outlast.worker.maintenance.dead_workers import DeadWorkerReclaimer
from outlast.worker.maintenance.group_closer import INCOMPLETE_GROUP_TIMEOUT, GroupCloser
from outlast.worker.maintenance.history_inspector import HistoryInspector
from outlast.worker.maintenance.pruner import GetRetentions, Pruner, no_retentions
from outlast.worker.maintenance.reservation_monitor import InspectionResult, ReservationMonitor
from outlast.worker.periodic import run_periodically

log = logging.getLogger("outlast.worker")

MAX_BATCH = 500
"""Jobs in one write at most."""

LOG_INTERVAL = timedelta(hours=1)
"""Interval at which old log files are deleted: each time reads the whole folder."""


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """What one step did."""

    reclaimed: int = 0
    misfired: int = 0
    reservations: int = 0
    members_ended: int = 0  # remaining members of closing groups


class Maintenance:
    """Runs maintenance steps. Each write is atomic per job, so a killed step is continued later."""

    def __init__(
        self,
        store: Store,
        new_id: Callable[[], JobId],
        *,
        clock: Clock | None = None,
        retentions: GetRetentions = no_retentions,
        on_reclaimed: Callable[[], None] = lambda: None,
    ) -> None:
        """Maintain that store; `clock` is the machine's, by which history may look old.

        `retentions` returns how long types keep their ended jobs that differ from the setting.
        `on_reclaimed` is called when jobs were taken from dead workers, so that they are claimed
        before the next poll.
        """
        self._store = store
        self._on_reclaimed = on_reclaimed
        self._clock = ClockWatch(clock or SystemClock())
        self._pruner = Pruner(store, clock or SystemClock())
        self._retentions = retentions
        self._reservations = ReservationMonitor(store, new_id)
        self._new_id = new_id
        self._groups = GroupCloser(store, new_id)
        self._dead_workers = DeadWorkerReclaimer(store, new_id)
        self._history = HistoryInspector(store, new_id)

    async def run_once(self) -> MaintenanceResult:
        """Reclaim expired leases, skip missed starts, end reservations and close groups."""
        is_trusted = self._clock.is_trusted()
        due = await check_maintenance(self._store, abandoned=INCOMPLETE_GROUP_TIMEOUT)
        if not due:
            return MaintenanceResult()
        done = await self._maintain(due, is_trusted=is_trusted)
        if done.reclaimed:
            self._on_reclaimed()
        return done

    async def _maintain(self, due: MaintenanceDue, *, is_trusted: bool) -> MaintenanceResult:
        """Do what is due; without trust in the wall clock, nothing that depends on it alone."""
        expired = await self._store.expired_leases(limit=MAX_BATCH) if due.expired_leases else []
        missed = (
            await self._store.missed_start_deadline(limit=MAX_BATCH)
            if due.missed_deadlines and is_trusted
            else []
        )
        reservations = (
            await self._reservations.run_once() if due.reservations else InspectionResult()
        )
        return MaintenanceResult(
            reclaimed=await self._reclaim(expired)
            + (await self._dead_workers.run_once() if due.dead_workers else 0),
            misfired=len(await self._settle(missed, Misfired())),
            reservations=reservations.freed + reservations.expired,
            members_ended=(await self._groups.run_once(expire=is_trusted)).ended
            if due.groups
            else 0,
        )

    async def inspect_history(self) -> None:
        """Inspect the history, if that is due."""
        await self._history.inspect_if_due()

    async def prune_once(self, older_than: timedelta | None, limit: int) -> int | None:
        """Delete one batch of old history; return how many jobs, None if no more can be.

        Jobs of a type with a retention of its own are kept for that time. Deletes nothing for a
        while after the wall clock was set ahead.
        """
        if not self._clock.is_trusted():
            return None
        return await self._pruner.step(older_than, self._retentions(), limit)

    async def prune_logs_once(self, folder: Path, older_than: timedelta | None) -> int:
        """Delete the log files of ended commands that are older than that; return how many.

        Those of a type with a retention of its own go when their job is gone.
        """
        if not self._clock.is_trusted():
            return 0
        own, now = self._retentions(), SystemClock().now()  # that of the file system
        removed = 0
        if older_than is not None:
            removed += await remove_expired_logs(
                self._store, folder, before=now - older_than, keep_types=own.keys()
            )
        if spans := [span for span in own.values() if span is not None]:
            removed += await remove_expired_logs(
                self._store, folder, before=now - min(spans), keep_types=None
            )
        return removed

    async def _reclaim(self, expired: list[Job]) -> int:
        try:
            lost = await self._settle(expired, Lost(Loss.LEASE_EXPIRED))
        except OperatorError as error:
            _log_lost(compress(expired, error.answers))
            raise
        _log_lost(lost)
        return len(lost)

    async def _settle(self, jobs: list[Job], event: Event) -> list[Job]:
        """Apply an event to jobs; return those to which it was applied.

        The store refuses the change if the job's worker or another reclaimer was first.
        """
        if not jobs:
            return []
        changes = [decide(job, event, new_id=self._new_id) for job in jobs]
        return list(compress(jobs, await self._store.apply(changes)))


def _log_lost(jobs: Iterable[Job]) -> None:
    for job in jobs:
        log_events.job_lost(Lease(job.id, job.token), reason=Loss.LEASE_EXPIRED, holder=job.holder)


async def run_maintenance(
    maintenance: Maintenance, settings: Settings, *, random: Callable[[], float]
) -> None:
    """Run maintenance every tick; prune and inspect the history every 60 ticks, until cancelled."""

    async def prune() -> None:
        deleted: int | None = 0
        while deleted is not None:
            deleted = await maintenance.prune_once(settings.retention, settings.prune_batch)

    async def prune_logs() -> None:
        await maintenance.prune_logs_once(settings.logs, settings.retention)

    await asyncio.gather(
        run_periodically(
            settings.tick, maintenance.run_once, what="run maintenance", random=random
        ),
        run_periodically(60 * settings.tick, prune, what="prune", random=random),
        run_periodically(
            60 * settings.tick, maintenance.inspect_history, what="inspect", random=random
        ),
        run_periodically(LOG_INTERVAL, prune_logs, what="delete old log files", random=random),
    )

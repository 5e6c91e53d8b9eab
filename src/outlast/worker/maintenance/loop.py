"""Looking after what others left: lapsed leases, missed starts, held queues, groups, history."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from outlast.config import Settings
from outlast.core.decide import decide
from outlast.core.event import Event, Lost, Misfired
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run import Lease
from outlast.core.state import Loss
from outlast.store.contract import Store, check_maintenance
from outlast.store.contract.maintenance import MaintenanceDue
from outlast.worker import log_events
from outlast.worker.maintenance.dead_workers import DeadWorkerReclaimer
from outlast.worker.maintenance.group_closer import INCOMPLETE_GROUP_TIMEOUT, GroupCloser
from outlast.worker.maintenance.reservation_monitor import InspectionResult, ReservationMonitor
from outlast.worker.periodic import run_periodically

log = logging.getLogger("outlast.worker")

MAX_BATCH = 500


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """What one step did."""

    reclaimed: int = 0
    misfired: int = 0
    reservations: int = 0
    members_ended: int = 0  # members left over in groups that close


class Maintenance:
    """Each step is one atomic write per job: killed in the middle, the next step goes on."""

    def __init__(self, store: Store, new_id: Callable[[], JobId]) -> None:
        self._store = store
        self._reservations = ReservationMonitor(store, new_id)
        self._new_id = new_id
        self._groups = GroupCloser(store, new_id)
        self._deserted = DeadWorkerReclaimer(store, new_id)

    async def run_once(self) -> MaintenanceResult:
        """Close what nobody renewed, skip what starts too late, free held queues, sweep groups."""
        chores = await check_maintenance(self._store, abandoned=INCOMPLETE_GROUP_TIMEOUT)
        return await self._tidy(chores) if chores else MaintenanceResult()

    async def _tidy(self, chores: MaintenanceDue) -> MaintenanceResult:
        lapsed = await self._store.expired_leases(limit=MAX_BATCH) if chores.lapsed else []
        for job in lapsed:
            log_events.job_lost(Lease(job.id, job.token), reason="lease_expired", holder=job.holder)
        overdue = await self._store.missed_start_deadline(limit=MAX_BATCH) if chores.overdue else []
        held = await self._reservations.run_once() if chores.held else InspectionResult()
        return MaintenanceResult(
            reclaimed=await self._settle(lapsed, Lost(Loss.LEASE_EXPIRED))
            + (await self._deserted.run_once() if chores.deserted else 0),
            misfired=await self._settle(overdue, Misfired()),
            reservations=held.freed + held.expired,
            members_ended=(await self._groups.run_once()).ended if chores.groups else 0,
        )

    async def prune_once(self, older_than: timedelta, limit: int) -> int:
        """Delete one small batch of old history; how many jobs went."""
        return await self._store.prune(older_than=older_than, limit=limit)

    async def _settle(self, jobs: list[Job], event: Event) -> int:
        if not jobs:
            return 0
        # A refusal means that its worker, or another reclaimer, was first.
        changes = [decide(job, event, new_id=self._new_id) for job in jobs]
        return sum(await self._store.apply(changes))


async def run_maintenance(
    tidy: Maintenance, settings: Settings, *, random: Callable[[], float]
) -> None:
    """Tidy every tick and prune every sixty, until cancelled."""

    async def prune() -> None:
        while settings.retention is not None:
            if not await tidy.prune_once(settings.retention, settings.prune_batch):
                return

    await asyncio.gather(
        run_periodically(settings.tick, tidy.run_once, what="tidy up", random=random),
        run_periodically(60 * settings.tick, prune, what="prune", random=random),
    )

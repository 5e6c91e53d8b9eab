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
from outlast.store.base import Store
from outlast.store.upkeep import Chores, look
from outlast.worker import log_events
from outlast.worker.maintenance.dead_workers import Deserted
from outlast.worker.maintenance.group_closer import ABANDONED, GroupSweep
from outlast.worker.maintenance.reservation_monitor import Inspected, ReservationCare
from outlast.worker.periodic import every

log = logging.getLogger("outlast.worker")

AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Tidied:
    """What one step did."""

    reclaimed: int = 0
    misfired: int = 0
    reservations: int = 0
    swept: int = 0  # members left over in groups that close


class Tidy:
    """Each step is one atomic write per job: killed in the middle, the next step goes on."""

    def __init__(self, store: Store, new_id: Callable[[], JobId]) -> None:
        self._store = store
        self._reservations = ReservationCare(store, new_id)
        self._new_id = new_id
        self._groups = GroupSweep(store, new_id)
        self._deserted = Deserted(store, new_id)

    async def run_once(self) -> Tidied:
        """Close what nobody renewed, skip what starts too late, free held queues, sweep groups."""
        chores = await look(self._store, abandoned=ABANDONED)
        return await self._tidy(chores) if chores else Tidied()

    async def _tidy(self, chores: Chores) -> Tidied:
        lapsed = await self._store.lapsed(limit=AT_ONCE) if chores.lapsed else []
        for job in lapsed:
            log_events.job_lost(Lease(job.id, job.token), reason="lease_expired", holder=job.holder)
        overdue = await self._store.overdue(limit=AT_ONCE) if chores.overdue else []
        held = await self._reservations.run_once() if chores.held else Inspected()
        return Tidied(
            reclaimed=await self._settle(lapsed, Lost(Loss.LEASE_EXPIRED))
            + (await self._deserted.run_once() if chores.deserted else 0),
            misfired=await self._settle(overdue, Misfired()),
            reservations=held.freed + held.expired,
            swept=(await self._groups.run_once()).ended if chores.groups else 0,
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


async def look_around(tidy: Tidy, settings: Settings, *, random: Callable[[], float]) -> None:
    """Tidy every tick and prune every sixty, until cancelled."""

    async def prune() -> None:
        while settings.retention is not None:
            if not await tidy.prune_once(settings.retention, settings.prune_batch):
                return

    await asyncio.gather(
        every(settings.tick, tidy.run_once, what="tidy up", random=random),
        every(60 * settings.tick, prune, what="prune", random=random),
    )

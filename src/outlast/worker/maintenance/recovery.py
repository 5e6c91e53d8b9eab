"""Start-up recovery: repairs what a crash has left, in a fixed order."""

import logging
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import asdict, dataclass, replace
from typing import Literal, Protocol

from outlast.config import UnknownOwnerPolicy
from outlast.core.event import Event, Lost
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run import LeaseHolder, loss_text
from outlast.core.state import Loss
from outlast.store.contract import HasCapabilities
from outlast.store.contract.jobs import MAX_PROMOTED_PER_CLAIM
from outlast.store.contract.locks import Locks
from outlast.store.contract.reservations import Reservations
from outlast.worker.maintenance.death_proof import decisive_locks
from outlast.worker.maintenance.history_inspector import (
    InspectedStore,
    all_pages,
    settle,
)
from outlast.worker.maintenance.reservation_monitor import ReservationMonitor

log = logging.getLogger("outlast.worker")

RecoveryScope = Literal["instance", "all"]


class RecoveryStore(InspectedStore, Reservations, Locks, HasCapabilities, Protocol):
    """The pages of the store contract that recovery needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """Counts of one recovery, in the order of its steps."""

    lost: int = 0  # runs of earlier boots, closed as lost
    unknown: int = 0  # runs of unknown owners, closed as lost
    inspected: int = 0  # active reservations inspected; not a repair
    freed: int = 0  # reservations ended: their job has ended or was released
    expired: int = 0  # reservations ended: their caller was dead or silent
    promoted: int = 0  # jobs that became due; not a repair

    @property
    def actions(self) -> int:
        """Number of repairs; 0 after a clean stop."""
        counts: dict[str, int] = asdict(self)
        return sum(counts.values()) - self.promoted - self.inspected


class Recovery:
    """Repairs, in a fixed order, what a crash has left.

    The caller holds the identity lock of `holder`. Scope `instance` closes the runs of its earlier
    boots. Scope `all` closes the runs of every worker in `queues`; the caller holds the lock of the
    only worker of these queues. If neither the lock nor the operating system proves a boot dead,
    its runs are closed only if their lease has expired. In scope `instance`, runs without an owner
    or whose owner is not `known` follow `unknown`: `fail` closes them at once, `threshold` only if
    their lease has expired, `leave` not at all.

    It reads what is open and no history: see `HistoryInspector` for that.

    Each repair is one fenced write: repeated, raced or killed midway, it has one outcome.
    """

    def __init__(
        self,
        store: RecoveryStore,
        holder: LeaseHolder,
        *,
        scope: RecoveryScope,
        new_id: Callable[[], JobId],
        unknown: UnknownOwnerPolicy = "threshold",
        known: Callable[[str], bool] = lambda _: True,
        queues: Collection[str] | None = None,
    ) -> None:
        self._store = store
        self._holder = holder
        self._scope = scope
        self._new_id = new_id
        self._unknown = unknown
        self._known = known
        self._queues = queues

    async def run_once(self) -> RecoveryResult:
        """Repair everything, log the repairs and promote jobs that became due."""
        done = RecoveryResult(
            lost=await self._own_lost_runs(), unknown=await self._unknown_owners()
        )
        reservations = await ReservationMonitor(self._store, self._new_id).run_once(log_all=True)
        done = replace(
            done,
            inspected=reservations.inspected,
            freed=reservations.freed,
            expired=reservations.expired,
        )
        done = replace(done, promoted=await self._promote())
        log.log(
            logging.INFO if done.actions else logging.DEBUG,
            "recovery finished instance=%s boot=%s actions=%d %s",
            self._holder.instance_id,
            self._holder.boot_id,
            done.actions,
            " ".join(f"{name}={count}" for name, count in asdict(done).items() if count),
        )
        return done

    async def _own_lost_runs(self) -> int:
        instance = self._holder.instance_id if self._scope == "instance" else None
        jobs = [job async for job in self._running(instance) if self._in_scope(job)]
        dead = decisive_locks(self._store, {str(job.boot_id) for job in jobs})
        lost = [(job, _lost(job, _reason(is_dead=str(job.boot_id) in dead))) for job in jobs]
        return len(await settle(self._store, lost, self._new_id))

    async def _unknown_owners(self) -> int:
        if self._scope == "all":
            return 0
        jobs = [job async for job in self._running(None) if self._is_unknown(job)]
        if self._unknown == "leave":
            for job in jobs:
                log.warning(
                    "left to its unknown owner job=%s holder=%s boot=%s",
                    job.id,
                    job.holder,
                    job.boot_id,
                )
            return 0
        reason = Loss.STARTUP_RECOVERY if self._unknown == "fail" else Loss.LEASE_EXPIRED
        lost = [(job, _lost(job, reason)) for job in jobs]
        return len(await settle(self._store, lost, self._new_id))

    async def _promote(self) -> int:
        count = 0
        while moved := await self._store.promote_due(limit=MAX_PROMOTED_PER_CLAIM):
            count += moved
        return count

    def _in_scope(self, job: Job) -> bool:
        """Whether the job may be closed: scope `all` is limited to the queues of this worker."""
        return self._scope == "instance" or self._queues is None or job.queue in self._queues

    def _running(self, instance_id: str | None) -> AsyncIterator[Job]:
        boot = self._holder.boot_id

        async def page(*, after: int, limit: int) -> list[Job]:
            return await self._store.running_under_other_boots(
                besides=boot, instance_id=instance_id, after=after, limit=limit
            )

        return all_pages(page)

    def _is_unknown(self, job: Job) -> bool:
        return job.holder is None or not self._known(job.holder)


def _lost(job: Job, reason: Loss = Loss.STARTUP_RECOVERY) -> Event:
    return Lost(reason, loss_text(reason, job.holder, job.boot_id))


def _reason(*, is_dead: bool) -> Loss:
    """Return why a run of an earlier boot is closed; the store refuses LEASE_EXPIRED before."""
    return Loss.STARTUP_RECOVERY if is_dead else Loss.LEASE_EXPIRED

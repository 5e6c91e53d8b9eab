"""Reclaims the runs of workers whose processes are all dead, before their leases expire."""

from collections.abc import AsyncIterator, Callable
from itertools import compress
from typing import Final

from outlast.core.decide import decide
from outlast.core.event import Lost
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run import Lease, loss_text
from outlast.core.state import Loss
from outlast.core.worker import SUPERVISED_BOOT_PREFIX
from outlast.store.contract import Store
from outlast.worker import log_events
from outlast.worker.maintenance.death_proof import decisive_locks

MAX_BATCH: Final = 500
"""Jobs in one page at most."""


class DeadWorkerReclaimer:
    """Closes the runs of a boot whose processes are all dead, under its lock.

    All processes of a worker share the lock of their boot. `decisive_locks` says whether acquiring
    it exclusively proves that none of them is alive.
    """

    def __init__(self, store: Store, new_id: Callable[[], JobId]) -> None:
        self._store = store
        self._new_id = new_id

    async def run_once(self) -> int:
        """Close the runs of dead workers; return how many."""
        boots = {job.boot_id async for job in self._running() if job.boot_id is not None}
        supervised = {boot for boot in boots if boot.startswith(SUPERVISED_BOOT_PREFIX)}
        free = await self._store.free_locks(decisive_locks(self._store, supervised))
        return sum([await self._close(boot) for boot in sorted(free)])

    async def _close(self, boot: str) -> int:
        lock = await self._store.acquire_lock(boot)
        if lock is None:  # another worker closes them, or the boot is alive after all
            return 0
        try:
            jobs = [job async for job in self._running() if job.boot_id == boot]
            return await self._lose(jobs) if jobs else 0
        finally:
            await lock.release()

    async def _lose(self, jobs: list[Job]) -> int:
        changes = [
            decide(job, Lost(Loss.OWNER_DEAD, _error_text(job)), new_id=self._new_id)
            for job in jobs
        ]
        lost = list(compress(jobs, await self._store.apply(changes)))
        for job in lost:
            log_events.job_lost(Lease(job.id, job.token), reason=Loss.OWNER_DEAD, holder=job.holder)
        return len(lost)

    async def _running(self) -> AsyncIterator[Job]:
        after = 0
        while jobs := await self._store.running_under_other_boots(
            besides="", after=after, limit=MAX_BATCH
        ):
            for job in jobs:
                yield job
            after = jobs[-1].seq


def _error_text(job: Job) -> str:
    return loss_text(Loss.OWNER_DEAD, job.holder, job.boot_id)

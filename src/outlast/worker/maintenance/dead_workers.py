"""Closing the runs of workers of which no process is left, without waiting for their leases."""

from collections.abc import AsyncIterator, Callable
from typing import Final

from outlast.core.decide import decide
from outlast.core.event import Lost
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.run import Lease
from outlast.core.state import Loss
from outlast.core.worker import SUPERVISED_BOOT_PREFIX
from outlast.store.contract import Store
from outlast.worker import log_events

MAX_BATCH: Final = 500


class DeadWorkerReclaimer:
    """Whoever has a worker's lock alone has proved that it is dead: only then is anything done."""

    def __init__(self, store: Store, new_id: Callable[[], JobId]) -> None:
        self._store = store
        self._new_id = new_id

    async def run_once(self) -> int:
        """How many runs it closed."""
        trees = {job.boot_id async for job in self._running() if _is_tree(job.boot_id)}
        vacant = await self._store.free_locks({tree for tree in trees if tree is not None})
        return sum([await self._close(tree) for tree in sorted(vacant)])

    async def _close(self, tree: str) -> int:
        hold = await self._store.acquire_lock(tree)
        if hold is None:  # somebody else closes them, or it lives after all
            return 0
        try:
            jobs = [job async for job in self._running() if job.boot_id == tree]
            for job in jobs:
                log_events.job_lost(
                    Lease(job.id, job.token), reason="owner_dead", holder=job.holder
                )
            changes = [
                decide(job, Lost(Loss.OWNER_DEAD, _prior(job)), new_id=self._new_id) for job in jobs
            ]
            return sum(await self._store.apply(changes)) if changes else 0
        finally:
            await hold.release()

    async def _running(self) -> AsyncIterator[Job]:
        after = 0
        while jobs := await self._store.running_under_other_boots(
            besides="", after=after, limit=MAX_BATCH
        ):
            for job in jobs:
                yield job
            after = jobs[-1].seq


def _is_tree(boot_id: str | None) -> bool:
    return boot_id is not None and boot_id.startswith(SUPERVISED_BOOT_PREFIX)


def _prior(job: Job) -> str:
    return f"holder={job.holder} boot={job.boot_id}"

"""Waits until no run is open in a sealed store: workers end their jobs or release them."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from outlast.core.decide import decide
from outlast.core.event import Lost
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.state import Loss
from outlast.errors import TransitionRefused
from outlast.store.contract import Store
from outlast.store.contract.notifications import Notification, Topic

POLL_INTERVAL_S: Final = 0.5
"""Seconds between two checks, unless a notification comes first."""

RELEASE_TIMEOUT: Final = timedelta(seconds=20)
"""Time after the grace for workers to release jobs, and for leases of dead ones to expire."""

MAX_BATCH: Final = 500
"""Jobs in one page at most."""

MAX_JOBS_NAMED: Final = 5
"""Jobs named in the error at most."""


async def drain(store: Store, *, new_id: Callable[[], JobId]) -> bool:
    """Wait until no run is open; return whether there was one.

    Raises TransitionRefused, naming jobs and their holders, if that takes too long.
    """
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wake(_: Notification) -> None:
        loop.call_soon_threadsafe(ended.set)

    unsubscribe = store.subscribe(wake, topics=[Topic.ENDED])
    had_runs = False
    try:
        while jobs := await store.running_under_other_boots(besides="", limit=MAX_BATCH):
            had_runs = True
            ended.clear()
            if not await _reclaim(store, new_id):
                await _require_time(store, jobs)
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_INTERVAL_S):
                        await ended.wait()
    finally:
        unsubscribe()
    return had_runs


async def _reclaim(store: Store, new_id: Callable[[], JobId]) -> int:
    """Reclaim expired leases: no worker may be left to do it. Returns how many."""
    expired = await store.expired_leases(limit=MAX_BATCH)
    changes = [decide(job, Lost(Loss.LEASE_EXPIRED), new_id=new_id) for job in expired]
    return sum(await store.apply(changes)) if changes else 0


async def _require_time(store: Store, jobs: Sequence[Job]) -> None:
    grace = (await store.transfer_status()).grace
    if grace is None or await store.now() > grace + RELEASE_TIMEOUT:
        held = ", ".join(f"{job.id} ({job.type}) by {job.holder}" for job in jobs[:MAX_JOBS_NAMED])
        raise TransitionRefused(
            f"{len(jobs):,} jobs still run after the grace: {held}; the source accepts work "
            "again. Stop these workers or give a longer --grace, and run the same command again"
        )

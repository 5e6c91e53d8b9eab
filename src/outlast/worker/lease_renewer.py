"""Renewing leases from a thread, so that a handler that blocks the event loop keeps its lease."""

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from outlast.core.run import Lease
from outlast.core.worker import WorkerInfo
from outlast.store.contract import Store
from outlast.store.contract.jobs import Renewal
from outlast.worker.periodic import run_periodically

log = logging.getLogger("outlast.worker")


class LeaseRenewer:
    """Renews whatever is `held`, and tells that the worker lives, on a loop of its own.

    `found` is called on the renewing thread for a lease that was lost or is to be cancelled.
    """

    def __init__(
        self,
        store: Store,
        info: WorkerInfo,
        held: Callable[[], list[Lease]],
        *,
        span: timedelta,
        interval: timedelta,
        found: Callable[[Lease, Renewal], None],
        seed: int,
    ) -> None:
        self._store = store
        self._info = info
        self._held = held
        self._span = span
        self._interval = interval
        self._found = found
        self._random = Random(seed)  # noqa: S311 - spreads renewals, guards nothing
        self._loop = asyncio.new_event_loop()
        self._poke = asyncio.Event()
        self._task: asyncio.Future[Any] | None = None
        self._thread = threading.Thread(target=self._run, name="outlast-renew", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look now: somebody may have asked a job to stop. Any thread may call it."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._poke.set)

    async def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        await asyncio.to_thread(self._thread.join)

    async def run_once(self) -> int:
        """Renew all leases held; how many were renewed."""
        leases = self._held()
        if not leases:
            return 0
        renewals = await self._store.renew(leases, span=self._span)
        for lease, renewal in zip(leases, renewals, strict=True):
            if not renewal.held or renewal.cancel_requested:
                self._found(lease, renewal)
        return sum(renewal.held for renewal in renewals)

    async def heartbeat_once(self) -> None:
        """Tell that this worker lives; the first time, who it is."""
        if not await self._store.heartbeat(self._info.holder, span=self._span):
            await self._store.register_worker(self._info)
            await self._store.heartbeat(self._info.holder, span=self._span)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        beating = run_periodically(
            self._interval,
            self.heartbeat_once,
            what="show signs of life",
            random=self._random.random,
            patience=1,
        )
        # A renewal that failed is repeated just as soon: leases do not wait for patience.
        renewing = run_periodically(
            self._interval,
            self.run_once,
            what="renew leases",
            random=self._random.random,
            poke=self._poke,
            patience=1,
        )
        self._task = asyncio.gather(
            self._loop.create_task(renewing), self._loop.create_task(beating)
        )
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        except Exception:
            log.exception("renewing ended; leases will lapse")
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

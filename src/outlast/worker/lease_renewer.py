"""The lease renewer: renews leases from a thread, so a blocked event loop keeps its leases."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any

from outlast.core.run import Lease
from outlast.core.worker import WorkerInfo
from outlast.errors import OperatorError
from outlast.store.contract import Store
from outlast.store.contract.jobs import Renewal
from outlast.worker.periodic import run_periodically

log = logging.getLogger("outlast.worker")


class LeaseRenewer:
    """Renews the leases and sends the heartbeat of a worker, on an event loop in a thread.

    `on_renewal` is called on that thread for a lease that was lost or is to be cancelled.
    """

    def __init__(
        self,
        store: Store,
        info: WorkerInfo,
        leases: Callable[[], list[Lease]],
        *,
        lease: timedelta,
        interval: timedelta,
        on_renewal: Callable[[Lease, Renewal], None],
        seed: int,
    ) -> None:
        self._store = store
        self._info = info
        self._registered: WorkerInfo | None = None
        self._leases = leases
        self._lease = lease
        self._interval = interval
        self._on_renewal = on_renewal
        self._random = Random(seed)  # noqa: S311 - spreads renewals, protects nothing
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._announce_stop = asyncio.Event()
        self._is_stopping = False
        self._task: asyncio.Future[Any] | None = None
        self._thread = threading.Thread(target=self._run, name="outlast-renew", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def register(self, info: WorkerInfo) -> None:
        """Register the worker anew at its next heartbeat, with other queues or types."""
        self._info = info

    def wake(self) -> None:
        """Renew now, to see a cancel request early. Thread-safe."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def announce_stop(self) -> None:
        """Tell the store now that the worker claims no more. Thread-safe."""
        self._is_stopping = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._announce_stop.set)

    async def stop(self) -> None:
        """Stop renewing and wait for the thread to end."""
        self._loop.call_soon_threadsafe(self._stop)
        await asyncio.to_thread(self._thread.join)

    async def run_once(self) -> int:
        """Renew all leases; return how many were renewed."""
        leases = self._leases()
        if not leases:
            return 0
        try:
            renewals = await self._store.renew(leases, span=self._lease)
        except OperatorError as error:
            self._pass_on(leases, error.answers)
            raise
        self._pass_on(leases, renewals)
        return sum(renewal.held for renewal in renewals)

    def _pass_on(self, leases: Sequence[Lease], renewals: Sequence[Renewal | None]) -> None:
        """Tell which leases were lost or are to be cancelled; None is no answer."""
        for lease, renewal in zip(leases, renewals, strict=False):
            if renewal is not None and (not renewal.held or renewal.cancel_requested):
                self._on_renewal(lease, renewal)

    async def heartbeat_once(self) -> None:
        """Send the heartbeat; register the worker if the store does not know it."""
        if self._info is self._registered and await self._heartbeat():
            return
        info = self._info
        await self._store.register_worker(info)
        await self._heartbeat()
        self._registered = info

    async def _heartbeat(self) -> bool:
        return await self._store.heartbeat(
            self._info.holder, span=self._lease, is_stopping=self._is_stopping
        )

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        heartbeats = run_periodically(
            self._interval,
            self.heartbeat_once,
            what="send the heartbeat",
            random=self._random.random,
            wake=self._announce_stop,
            error_backoff=1,
        )
        # No backoff: a failed renewal is repeated at the same interval, before the lease expires.
        renewals = run_periodically(
            self._interval,
            self.run_once,
            what="renew leases",
            random=self._random.random,
            wake=self._wake,
            error_backoff=1,
        )
        self._task = asyncio.gather(
            self._loop.create_task(renewals), self._loop.create_task(heartbeats)
        )
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        except Exception:
            log.exception("lease renewal stopped; the leases of this worker will expire")
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

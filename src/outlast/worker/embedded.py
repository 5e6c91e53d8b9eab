"""The worker that lives in your own process: `async with app.worker(): …`."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Self

from outlast.config import Settings
from outlast.core.failure_sink import FailureSink
from outlast.core.ids import Ids, JobId
from outlast.core.limits import check_name
from outlast.core.run import Lease, LeaseHolder
from outlast.core.worker import WorkerInfo
from outlast.errors import OperatorError
from outlast.jobs.registry import Registry
from outlast.store.contract import Store
from outlast.store.contract.jobs import Renewal
from outlast.store.contract.notifications import Notification, Topic
from outlast.worker.engine import WorkerEngine
from outlast.worker.lease_renewer import LeaseRenewer
from outlast.worker.lease_table import InMemoryLeaseTable
from outlast.worker.maintenance.loop import Maintenance, run_maintenance
from outlast.worker.maintenance.reservation_monitor import ReservationMonitor

log = logging.getLogger("outlast.worker")

BackgroundServices = Callable[[Store], Coroutine[Any, Any, None]]
"""What a worker keeps going beside its jobs, over its store, until it stops."""


async def no_background_services(_: Store) -> None:
    return


class Worker:
    """Takes jobs and runs them while its block is open; leaving the block stops it in order.

    Leases are renewed from a thread of their own, so a handler that blocks the event loop keeps
    its lease; code that holds the interpreter itself for longer than a lease can lose it. Then
    another worker runs the job again, and whatever this one writes late is refused.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        *,
        ids: Ids,
        random: Callable[[], float],
        beside: BackgroundServices = no_background_services,
        instance_id: str,
        queues: Sequence[str] = ("default",),
        types: Collection[str] | None = None,
        concurrency: int | None = None,
        app_address: str | None = None,
        watches: Sequence[FailureSink] = (),
    ) -> None:
        self._store = store
        self._settings = settings
        self._ids = ids
        self._random = random
        self._beside = beside
        self.holder = LeaseHolder(
            instance_id=check_name(instance_id, what="instance_id"), boot_id=str(uuid.uuid4())
        )
        self._held = InMemoryLeaseTable()
        self._engine = WorkerEngine(
            store,
            registry,
            settings,
            ids=ids,
            random=random,
            held=self._held,
            queues=queues,
            types=types,
            concurrency=concurrency,
            app_address=app_address,
            watches=watches,
        )
        self._stopping: asyncio.Task[None] | None = None
        self._is_running = False

    async def __aenter__(self) -> Self:
        await self._store.open()
        self._stopping = None
        self._held.clear()
        await self._look_at_reservations()
        self._engine.start(self.holder)
        self._renewer = self._make_renewer()
        self._renewer.start()
        self._deaf = self._store.subscribe(self._hint, topics=[Topic.WORK, Topic.CANCELLED])
        tidy = Maintenance(self._store, self._ids.job)
        self._tidying = asyncio.create_task(
            run_maintenance(tidy, self._settings, random=self._random), name="outlast-tidy"
        )
        self._going_on = asyncio.create_task(self._keep_beside(), name="outlast-beside")
        self._is_running = True
        log.info(
            "worker started instance=%s queues=%s", self.holder.instance_id, self._engine.queues
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Take no more, let what runs end within the grace, hand back the rest. Twice is fine."""
        if not self._is_running:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="outlast-stop")
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        await self._engine.stop(self._settings.grace)
        self._tidying.cancel()
        self._going_on.cancel()
        self._engine.close()
        self._deaf()
        await self._renewer.stop()
        await asyncio.wait([self._tidying, self._going_on])
        with suppress(OperatorError):  # it has stopped all the same, and is not heard any more
            await self._store.deregister_worker(self.holder)
        self._is_running = False
        log.info("worker stopped instance=%s", self.holder.instance_id)

    async def drained(self) -> None:
        """Wait until nothing is due and everything taken has ended, durably."""
        await self._engine.drained()

    @property
    def refused(self) -> int:
        """How many late writes of this worker were refused because it had lost the lease."""
        return self._engine.refused

    @property
    def unwritten(self) -> list[JobId]:
        """Jobs whose end the store has not taken yet; if that lasts, these need attention."""
        return self._engine.unwritten

    async def _look_at_reservations(self) -> None:
        """Before anything is taken: nobody waits any more for the direct job of a dead caller."""
        try:
            await ReservationMonitor(self._store, self._ids.job).run_once(tell_all=True)
        except OperatorError as error:
            log.warning("cannot look at reservations yet, will try again: %s", error)

    async def _keep_beside(self) -> None:
        try:
            await self._beside(self._store)
        except Exception:
            log.exception("what runs beside the jobs has stopped; restart the worker")

    def _make_renewer(self) -> LeaseRenewer:
        loop = asyncio.get_running_loop()

        def found(lease: Lease, renewal: Renewal) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody works here any more
                loop.call_soon_threadsafe(self._engine.on_renewal, lease, renewal)

        return LeaseRenewer(
            self._store,
            self._info(),
            self._held.all,
            span=self._settings.lease,
            interval=self._settings.renew,
            found=found,
            seed=int(self._random() * 2**32),
        )

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            instance_id=self.holder.instance_id,
            boot_id=self.holder.boot_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=tuple(self._engine.queues),
            types=tuple(self._engine.types),
            concurrency=self._engine.concurrency,
        )

    def _hint(self, hint: Notification) -> None:
        self._engine.notify(hint)
        if hint.cancelled:
            self._renewer.wake()

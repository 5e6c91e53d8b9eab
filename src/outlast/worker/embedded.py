"""The embedded worker: runs jobs in the caller's process, `async with app.worker(): …`."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Self

from outlast.config import Settings
from outlast.core.failure_sink import FailureSink
from outlast.core.ids import Ids, JobId
from outlast.core.limits import check_name
from outlast.core.run import Lease, LeaseHolder
from outlast.core.worker import WorkerInfo
from outlast.errors import OperatorError
from outlast.jobs.lifespan import NO_LIFESPAN, Lifespan
from outlast.jobs.registry import Registry
from outlast.store.contract import Store
from outlast.store.contract.jobs import Renewal
from outlast.store.contract.locks import HeldLock
from outlast.store.contract.notifications import Notification, Topic
from outlast.worker.engine import WorkerEngine
from outlast.worker.lease_renewer import LeaseRenewer
from outlast.worker.lease_table import InMemoryLeaseTable
from outlast.worker.maintenance.loop import Maintenance, run_maintenance
from outlast.worker.maintenance.reservation_monitor import ReservationMonitor
from outlast.worker.supervisor.identity import lock_scope

log = logging.getLogger("outlast.worker")

BackgroundServices = Callable[[Store], Coroutine[Any, Any, None]]
"""Runs on the worker's store, next to its jobs, until the worker stops."""


async def do_nothing() -> None:
    """Do nothing: the default of a worker whose app declares no queues."""
    return


async def no_background_services(_: Store) -> None:
    """Do nothing: the default of a worker without background services."""
    return


class Worker:
    """Claims and runs jobs while its `async with` block is open; leaving the block stops it.

    A separate thread renews leases, so a handler that blocks the event loop keeps its lease. Code
    that holds the interpreter lock longer than a lease can lose it. Another worker then runs the
    job again, and the store refuses the late write of this one.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        *,
        ids: Ids,
        random: Callable[[], float],
        background_services: BackgroundServices = no_background_services,
        instance_id: str,
        queues: Sequence[str] | None = None,
        types: Collection[str] | None = None,
        concurrency: int | None = None,
        app_address: str | None = None,
        failure_sinks: Sequence[FailureSink] = (),
        app_name: str = "",
        declared_schedules: Callable[[], Sequence[str]] = tuple,
        lifespan: Lifespan = NO_LIFESPAN,
        write_queues: Callable[[], Awaitable[None]] = do_nothing,
    ) -> None:
        self._write_queues = write_queues
        self._lifespan = lifespan
        self._app_name = app_name
        self._declared_schedules = declared_schedules
        self._store = store
        self._registry = registry
        self._settings = settings
        self._ids = ids
        self._random = random
        self._background_services = background_services
        self.holder = LeaseHolder(
            instance_id=check_name(instance_id, what="instance_id"), boot_id=str(uuid.uuid4())
        )
        self._leases = InMemoryLeaseTable()
        self._scope_lock: HeldLock | None = None
        self._engine = WorkerEngine(
            store,
            registry,
            settings,
            ids=ids,
            random=random,
            leases=self._leases,
            queues=queues,
            types=types,
            concurrency=concurrency,
            app_address=app_address,
            failure_sinks=failure_sinks,
        )
        self._stopping: asyncio.Task[None] | None = None
        self._is_running = False

    async def __aenter__(self) -> Self:
        await self._store.open()
        if self._settings.topology == "single":
            self._scope_lock = await lock_scope(self._store, self._settings.scope)
        try:
            return await self._start()
        except BaseException:
            await self._release_scope()
            raise

    async def _start(self) -> Self:
        self._stopping = None
        self._leases.clear()
        await self._check_reservations()
        await self._write_queues()  # before the first claim, which their limits concern
        self._engine.follow_registry()  # types registered since this worker was created
        for warning in map(self._registry.unknown_queue, self._engine.queues):
            if warning is not None:
                log.warning(warning)
        for warning in self._store.connection_warnings():
            log.warning("%s", warning)
        self._engine.context = await self._lifespan.start()
        self._engine.start(self.holder)
        self._renewer = self._make_renewer()
        self._renewer.start()
        self._unsubscribe = self._store.subscribe(
            self._notify, topics=[Topic.WORK, Topic.CANCELLED]
        )
        self._unwatch = self._registry.watch(self._registry_callback())
        maintenance = Maintenance(self._store, self._ids.job, retentions=self._registry.retentions)
        self._maintenance_task = asyncio.create_task(
            run_maintenance(maintenance, self._settings, random=self._random),
            name="outlast-maintenance",
        )
        self._services_task = asyncio.create_task(
            self._run_background_services(), name="outlast-background-services"
        )
        self._is_running = True
        log.info(
            "worker started instance=%s queues=%s", self.holder.instance_id, self._engine.queues
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop claiming, let running jobs end within the grace, release the rest. Idempotent."""
        if not self._is_running:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="outlast-stop")
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        self._renewer.announce_stop()
        await self._engine.stop(self._settings.grace)
        self._maintenance_task.cancel()
        self._services_task.cancel()
        self._engine.close()
        await self._lifespan.stop()
        self._unwatch()
        self._unsubscribe()
        await self._renewer.stop()
        await asyncio.wait([self._maintenance_task, self._services_task])
        with suppress(OperatorError):  # without it the registry entry expires with its heartbeat
            await self._store.deregister_worker(self.holder)
        await self._release_scope()
        self._is_running = False
        log.info("worker stopped instance=%s", self.holder.instance_id)

    async def _release_scope(self) -> None:
        if self._scope_lock is not None:
            await self._scope_lock.release()
            self._scope_lock = None

    async def drained(self) -> None:
        """Wait until no job is due and the end of every claimed job is durable."""
        await self._engine.drained()

    @property
    def refused(self) -> int:
        """Number of late writes that the store refused because the lease was lost."""
        return self._engine.refused

    @property
    def unwritten(self) -> list[JobId]:
        """Jobs whose end is not durable yet. If that lasts, the store needs attention."""
        return self._engine.unwritten

    async def _check_reservations(self) -> None:
        """End the reservations of dead callers before the first claim."""
        try:
            await ReservationMonitor(self._store, self._ids.job).run_once(log_all=True)
        except OperatorError as error:
            log.warning("cannot check reservations, will try again: %s", error)

    async def _run_background_services(self) -> None:
        try:
            await self._background_services(self._store)
        except Exception:
            log.exception(
                "background services stopped, among them the schedules; restart the worker"
            )

    def _registry_callback(self) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def follow() -> None:
            self._engine.follow_registry()
            self._renewer.register(self._info())

        def on_registered() -> None:
            with suppress(RuntimeError):  # the loop is closed, so the worker has stopped
                loop.call_soon_threadsafe(follow)

        return on_registered

    def _make_renewer(self) -> LeaseRenewer:
        loop = asyncio.get_running_loop()

        def on_renewal(lease: Lease, renewal: Renewal) -> None:
            with suppress(RuntimeError):  # the loop is closed, so the worker has stopped
                loop.call_soon_threadsafe(self._engine.on_renewal, lease, renewal)

        return LeaseRenewer(
            self._store,
            self._info(),
            self._leases.all,
            lease=self._settings.lease,
            interval=self._settings.renew,
            on_renewal=on_renewal,
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
            app=self._app_name,
            schedules=tuple(self._declared_schedules()),
        )

    def _notify(self, notification: Notification) -> None:
        self._engine.notify(notification)
        if notification.cancelled:
            self._renewer.wake()

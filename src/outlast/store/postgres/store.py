"""PostgresStore: the store contract on one schema of a PostgreSQL database."""

import asyncio
import os
import secrets
import threading
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from outlast.clock import Clock, SystemClock
from outlast.concurrency import LazyLoopThread
from outlast.core.ids import Ids
from outlast.core.limits import check_name
from outlast.errors import StoreClosed
from outlast.store.contract import Capability
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.postgres import health
from outlast.store.postgres.connection import connect, translated
from outlast.store.postgres.locks import PostgresLock, PostgresLocks
from outlast.store.postgres.migrate import is_ours, migrate
from outlast.store.postgres.notify.bridge import DisabledBridge, PgNotificationBridge
from outlast.store.postgres.operations.apply import PostgresApplyOperations
from outlast.store.postgres.operations.audit import PostgresAuditOperations
from outlast.store.postgres.operations.claim import PostgresClaimOperations
from outlast.store.postgres.operations.documents import PostgresDocumentOperations
from outlast.store.postgres.operations.groups import PostgresGroupOperations
from outlast.store.postgres.operations.insight import PostgresInsightOperations
from outlast.store.postgres.operations.jobs import PostgresJobOperations
from outlast.store.postgres.operations.logs import PostgresLogOperations
from outlast.store.postgres.operations.maintenance import PostgresMaintenanceOperations
from outlast.store.postgres.operations.positions import PostgresPositionOperations
from outlast.store.postgres.operations.queues import PostgresQueueOperations
from outlast.store.postgres.operations.reservations import PostgresReservationOperations
from outlast.store.postgres.operations.runs import PostgresRunOperations
from outlast.store.postgres.operations.schedules import PostgresScheduleOperations
from outlast.store.postgres.operations.transactions import PostgresTransactionOperations
from outlast.store.postgres.operations.transfer import PostgresTransferOperations
from outlast.store.postgres.operations.workers import PostgresWorkerOperations
from outlast.store.postgres.placeholders import Probe
from outlast.store.postgres.pool import ConnectionPool
from outlast.store.postgres.pooled_connection import open_watched
from outlast.store.postgres.unit_of_work import AsyncpgRunner
from outlast.store.postgres.url import parse_url
from outlast.store.subscribers import Subscribers

T = TypeVar("T")


class PostgresStore(
    PostgresTransactionOperations,
    PostgresClaimOperations,
    PostgresApplyOperations,
    PostgresRunOperations,
    PostgresLogOperations,
    PostgresJobOperations,
    PostgresPositionOperations,
    PostgresQueueOperations,
    PostgresReservationOperations,
    PostgresGroupOperations,
    PostgresScheduleOperations,
    PostgresDocumentOperations,
    PostgresWorkerOperations,
    PostgresMaintenanceOperations,
    PostgresInsightOperations,
    PostgresAuditOperations,
    PostgresTransferOperations,
):
    """A store for any number of processes on any number of hosts.

    `clock` is for tests: without it, the server's clock decides.
    """

    capabilities = frozenset(
        {
            Capability.DURABLE,
            Capability.SHARED,
            Capability.TRANSACTIONS,
            Capability.MAINTENANCE_CHECK,
        }
    )

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        probe: Probe | None = None,
    ) -> None:
        self.address = parse_url(url)
        self._clock = clock
        self._ids = ids or Ids((clock or SystemClock()).now, secrets.randbits)
        self._probe = probe
        self._guard = threading.Lock()
        self._owner_pid: int | None = None
        self._pools: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._loop_thread = LazyLoopThread("outlast-postgres")
        self._locks = PostgresLocks(self.address, self._loop_thread)
        self._subscribers = Subscribers()
        self._bridge: PgNotificationBridge | DisabledBridge = DisabledBridge()

    def exists(self) -> bool:
        """Return whether the schema holds Outlast tables."""
        return _run_in_own_loop(self._exists())

    async def open(self) -> None:
        """Create or migrate the schema and connect notifications; a no-op if open."""
        if self._owner_pid == os.getpid():
            return
        with translated(self.address):
            runner, watch = await open_watched(self.address, self._probe)
            try:
                await migrate(runner, self.address)
            finally:
                with suppress(Exception):
                    await runner.connection.close(timeout=1)
                await watch.stopped()
        with self._guard:
            self._pools.clear()  # after a fork, the parent keeps its own pools
            self._owner_pid = os.getpid()
        self._connect_notifications()

    async def close(self) -> None:
        """Finish pending writes, close every connection and release every lock; idempotent."""
        with self._guard:
            pools, self._pools = self._pools, {}
            owner_pid, self._owner_pid = self._owner_pid, None
        if owner_pid != os.getpid():
            return
        own_pool = pools.pop(asyncio.get_running_loop(), None)
        if own_pool is not None:
            await own_pool.close()
        for pool in pools.values():
            pool.terminate()
        await self._locks.release_all()
        await asyncio.to_thread(self._subscribers.disconnect)
        await asyncio.to_thread(self._loop_thread.stop)

    async def acquire_lock(
        self, name: str, *, shared: bool = False, lasting: bool = False
    ) -> PostgresLock | None:
        """Acquire a named lock; return None if it is held."""
        self._require_open()
        return await self._locks.acquire(name, shared=shared, lasting=lasting)

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        """Return those names whose lock is free."""
        checked = [check_name(name, what="lock name") for name in names]
        keys = self._locks.keys(checked)
        found = await self._pool.rows("locks.free", names=checked, keys=keys)
        return frozenset(row[0] for row in found)

    def subscribe(
        self, wake: Callable[[Notification], None], *, topics: Collection[Topic] = frozenset(Topic)
    ) -> Callable[[], None]:
        """Call `wake` for each notification of these topics; return a function that ends it."""
        return self._subscribers.add(wake, topics)

    def connection_warnings(self) -> list[str]:
        """Return no warnings."""
        return []

    async def health_warnings(self) -> list[str]:
        """Return what an operator of the server should change, each with the remedy."""
        rows = self._pool.rows
        [server] = await rows("health.server", schema=self.address.schema)
        blockers = await rows("health.vacuum_blockers", long=health.LONG_TRANSACTION_S)
        [(waiting,)] = await rows("health.waiting_for_notify")
        return [
            *health.server_warnings(server),
            *(health.vacuum_blocker_warning(row) for row in blockers),
            *health.notify_warnings(waiting),
            *health.lock_warnings(self._locks.lost),
            *await self._bridge.health_warnings(),
        ]

    def _notify(self, notification: Notification) -> None:
        if notification.topics:
            self._subscribers.publish(notification)

    def _connect_notifications(self) -> None:
        if self.address.notify:
            self._bridge = PgNotificationBridge(
                self.address,
                self._loop_thread,
                wanted=lambda: self._subscribers.wanted,
                deliver=self._subscribers.deliver,
            )
        self._subscribers.connect(self._bridge)

    async def _exists(self) -> bool:
        with translated(self.address):
            connection = await connect(self.address)
            try:
                return await is_ours(AsyncpgRunner(connection, self.address.schema), self.address)
            finally:
                await connection.close(timeout=1)

    @property
    def _pool(self) -> ConnectionPool:
        self._require_open()
        loop = asyncio.get_running_loop()
        with self._guard:
            if loop not in self._pools:
                self._drop_closed_loops()
                self._pools[loop] = self._new_pool()
            return self._pools[loop]

    def _require_open(self) -> None:
        if self._owner_pid is None:
            raise StoreClosed(f"{self.address.safe_text} is not open; call open() first")
        if self._owner_pid != os.getpid():
            raise StoreClosed(
                f"{self.address.safe_text} was opened before a fork; open another store in the "
                "child process"
            )

    def _new_pool(self) -> ConnectionPool:
        return ConnectionPool(
            self.address, clock=self._clock, probe=self._probe, notify=self._notify
        )

    def _drop_closed_loops(self) -> None:
        for loop in [each for each in self._pools if each.is_closed()]:
            self._pools.pop(loop).terminate()


def _run_in_own_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, run in a thread: this one may have a running loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()

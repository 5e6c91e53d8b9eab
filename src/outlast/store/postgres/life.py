"""A store's lifecycle, the lines of every loop that uses it, its locks and its wake-ups."""

import asyncio
import os
import secrets
import threading
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from outlast.clock import Clock, SystemClock
from outlast.core.ids import Ids
from outlast.core.limits import check_name
from outlast.errors import StoreClosed
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.postgres import health
from outlast.store.postgres.aside import LoopThread
from outlast.store.postgres.connection import connect, translated
from outlast.store.postgres.locks import PostgresLock, PostgresLocks
from outlast.store.postgres.migrate import is_ours, migrate
from outlast.store.postgres.notify.bridge import DisabledBridge, PgNotificationBridge
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.pool import ConnectionPool
from outlast.store.postgres.statements import Probe
from outlast.store.postgres.unit_of_work import AsyncpgRunner
from outlast.store.postgres.url import address
from outlast.store.subscribers import Subscribers


class PostgresLife(PostgresOperations):
    """Everything of a store but its verbs."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        probe: Probe | None = None,
    ) -> None:
        self.address = address(url)
        self._clock = clock
        self._ids = ids or Ids((clock or SystemClock()).now, secrets.randbits)
        self._probe = probe
        self._guard = threading.Lock()
        self._owner: int | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._aside = LoopThread()
        self._locks = PostgresLocks(self.address, self._aside)
        self._listeners = Subscribers()
        self._exchange: PgNotificationBridge | DisabledBridge = DisabledBridge()

    def exists(self) -> bool:
        return _in_a_loop_of_its_own(self._exists())

    async def open(self) -> None:
        if self._owner == os.getpid():
            return
        with translated(self.address):
            connection = await connect(self.address)
            try:
                await migrate(
                    AsyncpgRunner(connection, self.address.schema, self._probe), self.address
                )
            finally:
                with suppress(Exception):
                    await connection.close(timeout=1)
        with self._guard:
            self._by_loop.clear()  # a fork's parent keeps its own
            self._owner = os.getpid()
        self._connect_listeners()

    async def close(self) -> None:
        with self._guard:
            by_loop, self._by_loop = self._by_loop, {}
            owner, self._owner = self._owner, None
        if owner != os.getpid():
            return
        mine = by_loop.pop(asyncio.get_running_loop(), None)
        if mine is not None:
            await mine.close()
        for lines in by_loop.values():
            lines.terminate()
        await self._locks.release_all()
        await asyncio.to_thread(self._listeners.disconnect)
        await asyncio.to_thread(self._aside.stop)

    async def acquire_lock(self, name: str, *, shared: bool = False) -> PostgresLock | None:
        self._require_open()
        return await self._locks.take(name, shared=shared)

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        asked = [check_name(name, what="lock name") for name in names]
        keys = self._locks.keys(asked)
        found = await self._lines.rows("locks.free", names=asked, keys=keys)
        return frozenset(row[0] for row in found)

    def subscribe(
        self, wake: Callable[[Notification], None], *, topics: Collection[Topic] = frozenset(Topic)
    ) -> Callable[[], None]:
        return self._listeners.add(wake, topics)

    async def health_warnings(self) -> list[str]:
        ask = self._lines.rows
        [server] = await ask("health.server", schema=self.address.schema)
        keepers = await ask("health.vacuum_blockers", long=health.LONG)
        [(waiting,)] = await ask("health.waiting_for_notify")
        return [
            *health.of_server(server),
            *(health.vacuum_blocker_warning(row) for row in keepers),
            *health.of_commits(waiting),
            *health.of_locks(self._locks.lost),
            *await self._exchange.health_warnings(),
        ]

    def _tell(self, hint: Notification) -> None:
        """Something was committed here; never waits."""
        if hint.topics:
            self._listeners.publish(hint)

    def _connect_listeners(self) -> None:
        if self.address.notify:
            self._exchange = PgNotificationBridge(
                self.address,
                self._aside,
                wanted=lambda: self._listeners.wanted,
                heard=self._listeners.deliver,
            )
        self._listeners.connect(self._exchange)

    async def _exists(self) -> bool:
        with translated(self.address):
            connection = await connect(self.address)
            try:
                return await is_ours(AsyncpgRunner(connection, self.address.schema), self.address)
            finally:
                await connection.close(timeout=1)

    @property
    def _lines(self) -> ConnectionPool:
        self._require_open()
        loop = asyncio.get_running_loop()
        with self._guard:
            if loop not in self._by_loop:
                self._drop_closed()
                self._by_loop[loop] = self._new_lines()
            return self._by_loop[loop]

    def _require_open(self) -> None:
        if self._owner is None:
            raise StoreClosed(f"{self.address.safe_text} is not open; call open() first")
        if self._owner != os.getpid():
            raise StoreClosed(
                f"{self.address.safe_text} was opened before a fork; open a store of your own"
            )

    def _new_lines(self) -> ConnectionPool:
        return ConnectionPool(self.address, clock=self._clock, probe=self._probe, tell=self._tell)

    def _drop_closed(self) -> None:
        for loop in [each for each in self._by_loop if each.is_closed()]:
            self._by_loop.pop(loop).terminate()


T = TypeVar("T")


def _in_a_loop_of_its_own(asked: Coroutine[Any, Any, T]) -> T:
    """The answer, also where a loop runs already: on a thread that has its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, asked).result()

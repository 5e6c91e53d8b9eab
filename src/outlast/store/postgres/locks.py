"""Named locks: advisory locks in an open transaction on a dedicated connection.

Lasting locks share one connection and transaction; every other lock has its own. The transaction
locks no snapshot, so it does not block vacuum, and it works through a transaction pooler, where it
pins one server connection. When the connection breaks, its locks are reacquired at once. If another
process acquired one meanwhile, that lock is lost: `is_lost` is set and an error is logged.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import asyncpg

from outlast.concurrency import LazyLoopThread
from outlast.core.limits import check_name
from outlast.errors import OperatorError
from outlast.store.postgres.connection import translated
from outlast.store.postgres.dedicated_connection import DedicatedConnection
from outlast.store.postgres.placeholders import Probe
from outlast.store.postgres.statement_watch import SessionKey
from outlast.store.postgres.unit_of_work import AsyncpgRunner
from outlast.store.postgres.url import PostgresUrl

log = logging.getLogger("outlast.store")

FIRST_REACQUIRE_PAUSE_S: Final = 0.05
MAX_REACQUIRE_PAUSE_S: Final = 1.0
"""Seconds between two attempts to reacquire a lock, at first and at most."""

LOST_AFTER_S: Final = 3.0
"""Seconds for which another session must lock the lock before it counts as lost.

Longer than `free_locks` locks a lock to test it.
"""

MAX_LASTING_ATTEMPTS: Final = 5
LASTING_PAUSE_S: Final = 0.025
"""Attempts to acquire a lasting lock, and seconds between two of them."""


def lock_key(schema: str, name: str) -> str:
    """Return the text that is hashed to the advisory lock; a collision only refuses a lock."""
    return f"outlast lock {schema} {name}"


class PostgresLock:
    """A named lock that is held until it is released or lost."""

    def __init__(
        self, locks: "PostgresLocks", name: str, *, shared: bool, lasting: bool = False
    ) -> None:
        self._locks = locks
        self.name = name
        self.is_shared = shared
        self.is_lasting = lasting
        self.session: DedicatedConnection | None = None
        self.session_key: SessionKey | None = None
        self.is_wanted = True
        self.is_lost = False
        self.reacquiring: asyncio.Task[None] | None = None

    async def release(self) -> None:
        """Release the lock; idempotent."""
        await self._locks.release(self)


class PostgresLocks:
    """The locks that one store holds, on its loop thread."""

    def __init__(
        self, address: PostgresUrl, loop_thread: LazyLoopThread, probe: Probe | None = None
    ) -> None:
        self._address = address
        self._loop_thread = loop_thread
        self._probe = probe
        self._held: set[PostgresLock] = set()
        self._lasting: DedicatedConnection | None = None  # the connection of all lasting locks
        self._lasting_turn = asyncio.Lock()

    async def acquire(
        self, name: str, *, shared: bool = False, lasting: bool = False
    ) -> PostgresLock | None:
        """Acquire the lock of that name; return None if it is held, by this process included."""
        check_name(name, what="lock name")
        lock = PostgresLock(self, name, shared=shared, lasting=lasting)
        acquiring = asyncio.ensure_future(
            asyncio.wrap_future(self._loop_thread.run(self._acquire(lock)))
        )
        try:
            return lock if await asyncio.shield(acquiring) else None
        except asyncio.CancelledError:
            self._loop_thread.run(self._release(lock))  # the caller cannot release it any more
            raise

    async def release(self, lock: PostgresLock) -> None:
        """Release a lock; idempotent."""
        await asyncio.wrap_future(self._loop_thread.run(self._release(lock)))

    async def release_all(self) -> None:
        """Release every lock of the store."""
        for lock in tuple(self._held):
            await self.release(lock)
        self._lasting_turn = asyncio.Lock()  # the next loop thread has another event loop

    @property
    def lost(self) -> list[str]:
        """The names of lost locks."""
        return sorted(lock.name for lock in self._held if lock.is_lost)

    def keys(self, names: Collection[str]) -> list[str]:
        """Return the lock keys of these names."""
        return [self._key(name) for name in names]

    def _key(self, name: str) -> str:
        return lock_key(self._address.schema, name)

    async def _acquire(self, lock: PostgresLock) -> bool:
        """Acquire the lock on the loop thread, like every method below."""
        with translated(self._address):
            if not lock.is_lasting:
                return await self._acquire_on(await self._begin(), lock, self._lock)
            async with self._lasting_turn:
                if self._lasting is None or self._lasting.connection.is_closed():
                    self._lasting = await self._begin()
                return await self._acquire_on(self._lasting, lock, self._lock_lasting)

    async def _acquire_on(
        self,
        session: DedicatedConnection,
        lock: PostgresLock,
        try_lock: Callable[[DedicatedConnection, PostgresLock], Awaitable[bool]],
    ) -> bool:
        is_acquired = False
        try:
            # The caller may be cancelled while the lock is acquired.
            is_acquired = lock.is_wanted and await try_lock(session, lock) and lock.is_wanted
        finally:
            if not is_acquired and not self._is_used(session):
                await session.close()
        if is_acquired:
            lock.session = session
            self._held.add(lock)
            session.connection.add_termination_listener(lambda _: self._broken(lock, session))
        return is_acquired

    async def _begin(self) -> DedicatedConnection:
        """Open a connection with a transaction that no timeout ends."""
        session = await DedicatedConnection.open(self._address)
        try:
            runner = self._runner(session)
            await runner.change("unit_of_work.begin", {})
            await runner.change("locks.set_timeouts", {})
        except BaseException:
            await session.close()
            raise
        return session

    def _runner(self, session: DedicatedConnection) -> AsyncpgRunner:
        return AsyncpgRunner(session.connection, self._address.schema, self._probe)

    def _is_used(self, session: DedicatedConnection) -> bool:
        return any(lock.session is session for lock in self._held)

    async def _lock_lasting(self, session: DedicatedConnection, lock: PostgresLock) -> bool:
        """Lock on the shared connection, where no statement may fail: it would end all locks."""
        if any(_conflict(lock, other) for other in self._held if other is not lock):
            return False  # the session would be granted its own lock again
        runner = self._runner(session)
        asked = {"name": self._key(lock.name), "shared": lock.is_shared}
        for attempt in range(MAX_LASTING_ATTEMPTS):
            # The holder may just have died: its session ends a moment after its process.
            await asyncio.sleep(LASTING_PAUSE_S if attempt else 0)
            [(is_acquired, pid, since)] = await runner.fetch("locks.try", asked)
            if is_acquired:
                lock.session_key = SessionKey(pid, since)
                break
        else:
            await self._terminate_stale_session(runner, lock)
        await runner.change("locks.drop_snapshot", {})
        return bool(is_acquired)

    async def _lock(self, session: DedicatedConnection, lock: PostgresLock) -> bool:
        runner = self._runner(session)
        asked = {"name": self._key(lock.name), "shared": lock.is_shared}
        [(is_acquired, *session_key)] = await runner.fetch("locks.try", asked)
        if not is_acquired:
            try:
                await runner.fetch("locks.wait", asked)
            except asyncpg.LockNotAvailableError:
                await runner.change("unit_of_work.rollback", {})
                await self._terminate_stale_session(runner, lock)
                return False
        await runner.change("locks.drop_snapshot", {})
        lock.session_key = SessionKey(*session_key)
        return True

    async def _terminate_stale_session(self, runner: AsyncpgRunner, lock: PostgresLock) -> None:
        """Terminate the broken session of this lock, if the server still considers it alive."""
        if lock.session_key is not None:
            await runner.fetch("sessions.end", {**lock.session_key._asdict(), "millis": 0})

    async def _release(self, lock: PostgresLock) -> None:
        lock.is_wanted = False
        if not lock.is_lasting:
            await self._release_now(lock)
            return
        async with self._lasting_turn:  # no lock may be acquired on a connection that is closing
            await self._release_now(lock)

    async def _release_now(self, lock: PostgresLock) -> None:
        self._held.discard(lock)
        session, lock.session = lock.session, None
        if session is not None and not self._is_used(session):
            runner = self._runner(session)
            try:
                await runner.change(
                    "unit_of_work.rollback", {}
                )  # so that the lock is free when this returns
            except Exception as error:  # noqa: BLE001 - a broken session releases it
                log.debug("lock connection was broken name=%s: %s", lock.name, error)
            await session.close()

    def _broken(self, lock: PostgresLock, session: DedicatedConnection) -> None:
        if lock.is_wanted and lock.session is session:
            lock.session = None
            log.warning("lock connection broke, reacquiring name=%s", lock.name)
            lock.reacquiring = asyncio.create_task(self._reacquire(lock))

    async def _reacquire(self, lock: PostgresLock) -> None:
        loop, pause = asyncio.get_running_loop(), FIRST_REACQUIRE_PAUSE_S
        since: float | None = None
        while lock.is_wanted:
            try:
                if await self._acquire(lock):
                    log.warning("lock reacquired name=%s", lock.name)
                    return
            except OperatorError as error:
                log.debug("lock not reacquired yet name=%s: %s", lock.name, error)
                since = None
            else:
                since = since or loop.time()
                if loop.time() - since > LOST_AFTER_S:
                    lock.is_lost = True
                    log.error("lock lost, another process acquired it name=%s", lock.name)
                    return
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_REACQUIRE_PAUSE_S)


def _conflict(lock: PostgresLock, other: PostgresLock) -> bool:
    """Return whether two lasting locks of this process exclude each other."""
    return other.is_lasting and lock.name == other.name and not (lock.is_shared and other.is_shared)

"""Named locks that die with their holder: an open transaction each, on a connection of its own.

The transaction holds no snapshot, so it keeps no vacuum back, and it works through a transaction
pooler too. A connection can break while its process lives. Then the lock is taken again at once; if
somebody else has it by then, it is lost, and says so.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final

import asyncpg

from outlast.core.limits import check_name
from outlast.errors import OperatorError
from outlast.store.postgres.aside import LoopThread
from outlast.store.postgres.connection import translated
from outlast.store.postgres.dedicated_connection import DedicatedConnection
from outlast.store.postgres.statements import Probe
from outlast.store.postgres.unit_of_work import AsyncpgRunner
from outlast.store.postgres.url import PostgresUrl

log = logging.getLogger("outlast.store")

SOON: Final = 0.05
LATE: Final = 1.0
"""Seconds between two tries to take a lock again, at first and at most."""

INSIST: Final = 3.0
"""Seconds for which somebody else must have it before it is given up: longer than a look takes."""

Who = tuple[int, int]
"""A session of the server: its process, and since when."""


def lock_key(schema: str, name: str) -> str:
    """What is hashed for the server; a collision refuses one, and never are both held."""
    return f"outlast lock {schema} {name}"


class PostgresLock:
    """A lock that is held until it is released, or lost."""

    def __init__(self, locks: "PostgresLocks", name: str, *, shared: bool) -> None:
        self._locks = locks
        self.name = name
        self.is_shared = shared
        self.session: DedicatedConnection | None = None
        self.who: Who | None = None
        self.is_wanted = True
        self.is_lost = False
        self.retaking: asyncio.Task[None] | None = None

    async def release(self) -> None:
        await self._locks.release(self)


class PostgresLocks:
    """The locks that one store holds. They live on a thread aside, whichever loop asked."""

    def __init__(self, address: PostgresUrl, aside: LoopThread, probe: Probe | None = None) -> None:
        self._address = address
        self._aside = aside
        self._probe = probe
        self._held: set[PostgresLock] = set()

    async def take(self, name: str, *, shared: bool = False) -> PostgresLock | None:
        """Take the lock of that name; None if anybody has it, this process included."""
        hold = PostgresLock(self, check_name(name, what="lock name"), shared=shared)
        taking = asyncio.ensure_future(asyncio.wrap_future(self._aside.run(self._take(hold))))
        try:
            return hold if await asyncio.shield(taking) else None
        except asyncio.CancelledError:
            self._aside.run(self._release(hold))  # nobody will know that it was taken
            raise

    async def release(self, hold: PostgresLock) -> None:
        await asyncio.wrap_future(self._aside.run(self._release(hold)))

    async def release_all(self) -> None:
        for hold in tuple(self._held):
            await self.release(hold)

    @property
    def lost(self) -> list[str]:
        """Names that somebody else has now, though we did not let go of them."""
        return sorted(hold.name for hold in self._held if hold.is_lost)

    def keys(self, names: Collection[str]) -> list[str]:
        return [self._key(name) for name in names]

    def _key(self, name: str) -> str:
        return lock_key(self._address.schema, name)

    async def _take(self, hold: PostgresLock) -> bool:
        """On the thread aside, as everything below."""
        with translated(self._address):
            session = await DedicatedConnection.open(self._address)
            is_ours = False
            try:
                # Whoever asked may go away while it is being taken, too.
                is_ours = hold.is_wanted and await self._lock(session, hold) and hold.is_wanted
            finally:
                if not is_ours:
                    await session.close()
        if is_ours:
            hold.session = session
            self._held.add(hold)
            session.connection.add_termination_listener(lambda _: self._broken(hold, session))
        return is_ours

    async def _lock(self, session: DedicatedConnection, hold: PostgresLock) -> bool:
        lane, key = (
            AsyncpgRunner(session.connection, self._address.schema, self._probe),
            self._key(hold.name),
        )
        await lane.change("unit_of_work.begin", {})
        await lane.change("locks.set_timeouts", {})
        asked = {"name": key, "shared": hold.is_shared}
        [(is_ours, *who)] = await lane.fetch("locks.try", asked)
        if not is_ours:
            try:
                await lane.fetch("locks.wait", asked)
            except asyncpg.LockNotAvailableError:
                await lane.change("unit_of_work.rollback", {})
                await self._terminate_stale_session(lane, hold)
                return False
        await lane.change("locks.drop_snapshot", {})
        hold.who = (who[0], who[1])
        return True

    async def _terminate_stale_session(self, lane: AsyncpgRunner, hold: PostgresLock) -> None:
        """If it is our own former session that has it: the server did not see it break."""
        if hold.who is not None:
            await lane.fetch("locks.terminate_session", {"pid": hold.who[0], "since": hold.who[1]})

    async def _release(self, hold: PostgresLock) -> None:
        hold.is_wanted = False
        self._held.discard(hold)
        session, hold.session = hold.session, None
        if session is not None:
            lane = AsyncpgRunner(session.connection, self._address.schema, self._probe)
            try:
                await lane.change("unit_of_work.rollback", {})  # so that it is free when we answer
            except Exception as error:  # noqa: BLE001 - it is free then too
                log.debug("a lock's connection had broken name=%s: %s", hold.name, error)
            await session.close()

    def _broken(self, hold: PostgresLock, session: DedicatedConnection) -> None:
        if hold.is_wanted and hold.session is session:
            hold.session = None
            log.warning("connection of a lock broke, taking it again name=%s", hold.name)
            hold.retaking = asyncio.create_task(self._take_again(hold))

    async def _take_again(self, hold: PostgresLock) -> None:
        loop, pause = asyncio.get_running_loop(), SOON
        since: float | None = None
        while hold.is_wanted:
            try:
                if await self._take(hold):
                    log.warning("lock taken again name=%s", hold.name)
                    return
            except OperatorError as error:
                log.debug("lock not taken again yet name=%s: %s", hold.name, error)
                since = None
            else:
                since = since or loop.time()
                if loop.time() - since > INSIST:
                    hold.is_lost = True
                    log.error("somebody else has taken the lock meanwhile name=%s", hold.name)
                    return
            await asyncio.sleep(pause)
            pause = min(2 * pause, LATE)

"""The connections of one event loop: each for one purpose, opened when first needed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from outlast.clock import Clock
from outlast.errors import OperatorError, StoreClosed, StoreUnavailable
from outlast.store.contract.notifications import Notification
from outlast.store.postgres.connection import (
    CONNECTION_ERRORS,
    RETRYABLE,
    connect,
    is_connection_error,
    translate_error,
)
from outlast.store.postgres.group_commit import GroupCommit
from outlast.store.postgres.operations.scan_floor import TIMELESS, Pace, ScanFloors
from outlast.store.postgres.statements import Probe
from outlast.store.postgres.unit_of_work import AsyncpgRunner, Row, UnitOfWork, begin_unit
from outlast.store.postgres.url import PostgresUrl

T = TypeVar("T")

READS: Final = 2
TRIES: Final = 10
"""How often a transaction is begun anew that another one got in the way of."""


class PooledConnection:
    """One connection, used by one at a time and opened again when it broke."""

    def __init__(
        self, address: PostgresUrl, probe: Probe | None, *, plans_once: bool = False
    ) -> None:
        self._address = address
        self._plans_once = plans_once
        self._probe = probe
        self._turn = asyncio.Lock()
        self._lane: AsyncpgRunner | None = None

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[AsyncpgRunner]:
        """The connection, alone. Whatever breaks it, the next one to come gets a new one."""
        async with self._turn:
            if self._lane is None or self._lane.connection.is_closed():
                connection = await connect(self._address, plans_once=self._plans_once)
                self._lane = AsyncpgRunner(connection, self._address.schema, self._probe)
            try:
                yield self._lane
            except asyncio.CancelledError:
                self._drop()  # a statement may be half sent
                raise
            except CONNECTION_ERRORS as error:
                if is_connection_error(error):
                    self._drop()
                raise

    def _drop(self) -> None:
        if self._lane is not None:
            self._lane.connection.terminate()
            self._lane = None

    async def close(self) -> None:
        async with self._turn:
            if self._lane is not None and not self._lane.connection.is_closed():
                with suppress(*CONNECTION_ERRORS):
                    await self._lane.connection.close(timeout=1)
            self._lane = None

    def terminate(self) -> None:
        """Without waiting, from anywhere: its loop may be gone."""
        with suppress(Exception):
            self._drop()


class ConnectionPool:
    """What one loop asks the database through."""

    def __init__(
        self,
        address: PostgresUrl,
        *,
        clock: Clock | None,
        probe: Probe | None,
        tell: Callable[[Notification], None],
    ) -> None:
        self._address = address
        self._clock = clock
        self._tell = tell
        self._closed = False
        self._lines: dict[str, PooledConnection] = {}
        self._gathers: dict[str, GroupCommit[Any, Any]] = {}
        self._probe = probe
        self._reads = 0
        # Loops end without asking anybody, but first they end the generators that began in them.
        self._keeper = self._kept()
        with suppress(StopIteration):
            anext(self._keeper).__await__().send(None)
        time, pace = asyncio.get_running_loop().time, TIMELESS if clock else Pace()
        self.floors = ScanFloors(time, pace)
        self.ahead = ScanFloors(time, pace)  # of claims that only prefetch
        self.backlogged_queues: set[str] = set()  # queues of which the last claim did not take all

    def line(self, purpose: str) -> PooledConnection:
        """The connection for that purpose."""
        if self._closed:
            raise StoreClosed(f"{self._address.safe_text} was closed; open the store again")
        if purpose not in self._lines:
            is_read = purpose.startswith("read")  # whose plans depend on what is asked for
            self._lines[purpose] = PooledConnection(
                self._address, self._probe, plans_once=not is_read
            )
        return self._lines[purpose]

    def gather(
        self, purpose: str, serve: Callable[[Sequence[Any], bool], Awaitable[list[Any]]]
    ) -> GroupCommit[Any, Any]:
        """What brings together all that this loop asks for that purpose."""
        if purpose not in self._gathers:
            self._gathers[purpose] = GroupCommit(serve)
        return self._gathers[purpose]

    async def rows(self, name: str, /, **values: Any) -> list[Row]:
        """The rows of one question; asked again once if the connection had died."""
        self._reads += 1
        line = self.line(f"read-{self._reads % READS}")
        return await self.with_reconnect(lambda: _fetch(line, name, values), tries=2)

    async def in_snapshot(self, read: Callable[[UnitOfWork], Awaitable[T]]) -> T:
        """What `read` makes of several questions, all answered from one and the same moment."""
        line = self.line("read-0")
        return await self.with_reconnect(lambda: self._at_once(line, read), tries=2)

    async def transact(
        self, verb: Callable[[UnitOfWork], Awaitable[T]], purpose: str = "write"
    ) -> T:
        """What the verb answers, once what it wrote is durable; begun anew after a deadlock."""
        line = self.line(purpose)
        for left in reversed(range(TRIES)):
            try:
                return await self._transact(line, verb)
            except RETRYABLE as error:
                if not left:
                    raise translate_error(error, self._address) from error
                await asyncio.sleep(0)
            except Exception as error:
                better = translate_error(error, self._address)
                if better is error or not isinstance(better, OperatorError):
                    raise  # what was asked cannot be kept: whoever asked says which part of it
                raise better from error
        raise AssertionError("unreachable")

    async def with_reconnect(self, ask: Callable[[], Awaitable[T]], *, tries: int) -> T:
        """The answer, or our word for what was in the way."""
        for left in reversed(range(tries)):
            try:
                return await ask()
            except StoreUnavailable:
                raise
            except Exception as error:
                if left and is_connection_error(error):
                    continue
                better = translate_error(error, self._address)
                if better is error:
                    raise
                raise better from error
        raise AssertionError("unreachable")

    async def _transact(
        self, line: PooledConnection, verb: Callable[[UnitOfWork], Awaitable[T]]
    ) -> T:
        async with line.acquire() as lane:
            await lane.change("unit_of_work.begin", {})
            try:
                work = await begin_unit(lane, self._clock)
                answer = await verb(work)
                await lane.change("unit_of_work.commit", {})
            except BaseException:
                await _roll_back(lane)
                raise
        self._tell(work.hint)
        return answer

    async def _at_once(
        self, line: PooledConnection, read: Callable[[UnitOfWork], Awaitable[T]]
    ) -> T:
        async with line.acquire() as lane:
            await lane.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                return await read(await begin_unit(lane, self._clock))
            finally:
                await _roll_back(lane)

    async def close(self) -> None:
        await self._keeper.aclose()

    async def _kept(self) -> AsyncGenerator[None, None]:
        """Until somebody closes it, or its loop ends."""
        try:
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        for gather in tuple(self._gathers.values()):
            await gather.flushed()
        self._closed = True
        for line in self._lines.values():
            await line.close()

    def terminate(self) -> None:
        self._closed = True
        for line in self._lines.values():
            line.terminate()


async def _fetch(line: PooledConnection, name: str, values: dict[str, Any]) -> list[Row]:
    async with line.acquire() as lane:
        return await lane.fetch(name, values)


async def _roll_back(lane: AsyncpgRunner) -> None:
    with suppress(*CONNECTION_ERRORS):
        await lane.change("unit_of_work.rollback", {})

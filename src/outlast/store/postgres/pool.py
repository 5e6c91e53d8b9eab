"""Connection pool of one event loop: one connection per purpose, opened when first needed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from outlast.clock import Clock
from outlast.core.run import LeaseHolder
from outlast.errors import OperatorError, StoreClosed, StoreUnavailable
from outlast.store.contract.notifications import Notification
from outlast.store.postgres.connection import (
    CONNECTION_ERRORS,
    RETRYABLE,
    is_connection_error,
    translate_error,
)
from outlast.store.postgres.group_commit import GroupCommit
from outlast.store.postgres.operations.scan_floor import TIMELESS, Pace, ScanFloors
from outlast.store.postgres.placeholders import Probe
from outlast.store.postgres.pooled_connection import PooledConnection
from outlast.store.postgres.unit_of_work import AsyncpgRunner, PostgresUnitOfWork, Row, begin_unit
from outlast.store.postgres.url import PostgresUrl

T = TypeVar("T")

READ_CONNECTIONS: Final = 2
"""Number of connections that single reads are spread over."""

MAX_HANDLER_CONNECTIONS: Final = 20
"""Number of handler transactions of one process that are open at a time; others wait."""

MAX_TRANSACTION_ATTEMPTS: Final = 10
"""Number of times a transaction is begun again after a deadlock or lock timeout."""

MAX_READ_ATTEMPTS: Final = 2
"""Number of attempts of a read whose connection breaks."""


class ConnectionPool:
    """The connections, group commits and claim state of one event loop."""

    def __init__(
        self,
        address: PostgresUrl,
        *,
        clock: Clock | None,
        probe: Probe | None,
        notify: Callable[[Notification], None],
    ) -> None:
        self._address = address
        self._clock = clock
        self._notify = notify
        self._closed = False
        self._connections: dict[str, PooledConnection] = {}
        self._group_commits: dict[str, GroupCommit[Any, Any]] = {}
        self._probe = probe
        self._reads = 0
        self.handler_slots = asyncio.Semaphore(MAX_HANDLER_CONNECTIONS)
        # A loop that shuts down finalises its async generators: this one closes the pool.
        self._finalizer = self._close_on_shutdown()
        with suppress(StopIteration):
            anext(self._finalizer).__await__().send(None)
        time, pace = asyncio.get_running_loop().time, TIMELESS if clock else Pace()
        self.floors = ScanFloors(time, pace)
        self.prefetch_floors = ScanFloors(time, pace)  # of claims that only prefetch
        self.backlogged_queues: set[str] = set()  # queues whose last claim left jobs waiting
        # Prefixes of claims that ended without a reply, by holder and queue, each with the time of
        # the loop until which it is looked for.
        self.unanswered_claims: dict[tuple[LeaseHolder, str], dict[str, float]] = {}

    def connection(self, purpose: str) -> PooledConnection:
        """Return the connection for a purpose; raises StoreClosed if the pool is closed."""
        if self._closed:
            raise StoreClosed(f"{self._address.safe_text} was closed; open the store again")
        if purpose not in self._connections:
            is_read = purpose.startswith("read")  # the plan of a read depends on its values
            self._connections[purpose] = PooledConnection(
                self._address, self._probe, plans_once=not is_read, must_end=purpose == "claim"
            )
        return self._connections[purpose]

    def group_commit(
        self, purpose: str, serve: Callable[[Sequence[Any], bool], Awaitable[list[Any]]]
    ) -> GroupCommit[Any, Any]:
        """Return the group commit for a purpose; `serve` is used when it is created."""
        if purpose not in self._group_commits:
            self._group_commits[purpose] = GroupCommit(serve)
        return self._group_commits[purpose]

    async def rows(self, name: str, /, **values: Any) -> list[Row]:
        """Return the rows of one read; repeated once if the connection was broken."""
        self._reads += 1
        connection = self.connection(f"read-{self._reads % READ_CONNECTIONS}")
        return await self.with_reconnect(
            lambda: _fetch(connection, name, values), attempts=MAX_READ_ATTEMPTS
        )

    async def in_snapshot(self, read: Callable[[PostgresUnitOfWork], Awaitable[T]]) -> T:
        """Return the result of `read`, whose statements all see one snapshot."""
        connection = self.connection("read-0")
        return await self.with_reconnect(
            lambda: self._read_snapshot(connection, read), attempts=MAX_READ_ATTEMPTS
        )

    async def transact(
        self, operation: Callable[[PostgresUnitOfWork], Awaitable[T]], purpose: str = "write"
    ) -> T:
        """Run an operation in a transaction, commit it and return its result.

        A deadlock or lock timeout rolls back and begins again. Errors of the server are
        translated, except errors about a value: the operation reports which value it was.
        """
        connection = self.connection(purpose)
        try:
            return await self.repeat_on_conflict(lambda: self._transact(connection, operation))
        except Exception as error:
            translated = translate_error(error, self._address)
            if translated is error or not isinstance(translated, OperatorError):
                raise
            raise translated from error

    async def repeat_on_conflict(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Return the result of an operation; repeat it after a deadlock or lock timeout.

        Raises StoreBusy after the last attempt. Each attempt must be one transaction.
        """
        for left in reversed(range(MAX_TRANSACTION_ATTEMPTS)):
            try:
                return await operation()
            except RETRYABLE as error:
                if not left:
                    raise translate_error(error, self._address) from error
                await asyncio.sleep(0)
        raise AssertionError("unreachable")

    async def with_reconnect(self, read: Callable[[], Awaitable[T]], *, attempts: int) -> T:
        """Return the result of `read`; repeat it after a connection error, translate others."""
        for left in reversed(range(attempts)):
            try:
                return await read()
            except StoreUnavailable:
                raise
            except Exception as error:
                if left and is_connection_error(error):
                    continue
                translated = translate_error(error, self._address)
                if translated is error:
                    raise
                raise translated from error
        raise AssertionError("unreachable")

    async def _transact(
        self, connection: PooledConnection, operation: Callable[[PostgresUnitOfWork], Awaitable[T]]
    ) -> T:
        async with connection.acquire() as runner:
            await runner.change("unit_of_work.begin", {})
            try:
                work = await begin_unit(runner, self._clock)
                answer = await operation(work)
                await runner.change("unit_of_work.commit", {})
            except BaseException:
                await _roll_back(runner)
                raise
        self._notify(work.notification)
        return answer

    async def _read_snapshot(
        self, connection: PooledConnection, read: Callable[[PostgresUnitOfWork], Awaitable[T]]
    ) -> T:
        async with connection.acquire() as runner:
            await runner.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                return await read(await begin_unit(runner, self._clock))
            finally:
                await _roll_back(runner)

    async def close(self) -> None:
        """Wait for pending group commits and close every connection; idempotent."""
        await self._finalizer.aclose()

    async def _close_on_shutdown(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        for group_commit in tuple(self._group_commits.values()):
            await group_commit.flushed()
        self._closed = True
        for connection in self._connections.values():
            await connection.close()

    def terminate(self) -> None:
        """Close every connection without waiting, from any thread."""
        self._closed = True
        for connection in self._connections.values():
            connection.terminate()


async def _fetch(connection: PooledConnection, name: str, values: dict[str, Any]) -> list[Row]:
    async with connection.acquire() as runner:
        return await runner.fetch(name, values)


async def _roll_back(runner: AsyncpgRunner) -> None:
    with suppress(*CONNECTION_ERRORS):
        await runner.change("unit_of_work.rollback", {})

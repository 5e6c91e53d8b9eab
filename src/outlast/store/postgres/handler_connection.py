"""Connections given to handlers: they refuse statements after their transaction has ended."""

import asyncio
import os
import socket
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, TypeVar

import asyncpg

from outlast.core.sync_coroutine import run_without_waiting
from outlast.errors import RunError, StoreUnavailable
from outlast.store.postgres.caller_connection import run_in_thread
from outlast.store.postgres.caller_drivers import ForeignAsyncpgRunner, PsycopgRunner
from outlast.store.postgres.connection import CONNECT_TIMEOUT_S, keep_alive, translated
from outlast.store.postgres.placeholders import Probe
from outlast.store.postgres.unit_of_work import StatementRunner
from outlast.store.postgres.url import PostgresUrl

T = TypeVar("T")

ENDED_BY_HANDLER: Final = (
    "the handler ended run.transaction() itself; leave commit, rollback and close to Outlast, "
    "which commits it together with the end of the run"
)
PSYCOPG_MISSING: Final = (
    "run.transaction() of a handler in a thread needs psycopg, which is not installed; pip install "
    "'psycopg[binary]', or make the handler async"
)
APPLICATION_NAME: Final = "outlast handler"
_LIBPQ_TCP_OPTIONS: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
CLOSE_TIMEOUT_S: Final = 1.0
"""Seconds that closing a connection may take."""


class PostgresTransactionGuard:
    """The state of a handler transaction, which decides whether statements are allowed."""

    def __init__(self) -> None:
        self.is_active = False
        self.is_ended = False
        self.ended_by_handler = False

    def refuse(self) -> None:
        """Raise RunError if the transaction has ended."""
        if self.ended_by_handler:
            raise RunError(ENDED_BY_HANDLER)
        if self.is_ended:
            raise RunError("this run.transaction() has ended")

    def refuse_ending(self) -> None:
        """Raise RunError if the handler ends the transaction itself."""
        if self.is_active:
            self.ended_by_handler = True
            raise RunError(ENDED_BY_HANDLER)


class GuardedAsyncpgConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """An asyncpg connection that reports itself closed once its transaction has ended."""

    guard: PostgresTransactionGuard | None = None

    def is_closed(self) -> bool:
        """Return whether the connection is closed or its transaction has ended."""
        guard = self.guard
        if super().is_closed() or guard is None or not guard.is_active:
            return bool(super().is_closed())
        if not self.is_in_transaction():
            guard.ended_by_handler = True
        return guard.is_ended or guard.ended_by_handler

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's
        """Close the connection; RunError inside the transaction."""
        self._refuse_ending()
        await super().close(timeout=timeout)

    async def reset(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's
        """Reset the session; RunError inside the transaction."""
        self._refuse_ending()
        await super().reset(timeout=timeout)

    def terminate(self) -> None:
        """Close the connection without waiting; RunError inside the transaction."""
        self._refuse_ending()
        super().terminate()

    def _refuse_ending(self) -> None:
        if self.guard is not None:
            self.guard.refuse_ending()


class HandlerConnection(Protocol):
    """The store's side of a connection that a handler uses."""

    connection: Any
    address: PostgresUrl
    runner: StatementRunner

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    async def begin(self) -> None:
        """Open a transaction."""
        ...

    async def step(self, step: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that uses `runner`."""
        ...

    async def close(self, *, at_once: bool) -> None:
        """Roll back and close; `at_once` if the server has terminated the session."""
        ...


class AsyncHandlerConnection:
    """The asyncpg connection of an async handler, on the worker's loop."""

    def __init__(self, connection: Any, address: PostgresUrl, probe: Probe | None) -> None:
        self.connection = connection
        self.address = address
        self.runner: StatementRunner = ForeignAsyncpgRunner(connection, address.schema, probe)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self.connection.is_in_transaction())

    async def begin(self) -> None:
        """Open a transaction."""
        # By the API of asyncpg: the handler's own transactions then become savepoints.
        await self.connection.transaction(isolation="read_committed").start()

    async def step(self, step: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that uses `runner`."""
        return await step

    async def close(self, *, at_once: bool) -> None:
        """Roll back and close; `at_once` if the server has terminated the session."""
        if at_once:
            self.connection.terminate()
            return
        if self.in_transaction:
            await self.runner.change("unit_of_work.rollback", {})
        await self.connection.close(timeout=CLOSE_TIMEOUT_S)


class ThreadHandlerConnection:
    """The psycopg connection of a handler in a thread.

    The store uses it on another thread while the handler's thread waits.
    """

    def __init__(self, connection: Any, address: PostgresUrl, probe: Probe | None) -> None:
        self.connection = connection
        self.address = address
        self.runner: StatementRunner = PsycopgRunner(connection, address.schema, probe)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self.connection.info.transaction_status.name in {"INTRANS", "INERROR"})

    async def begin(self) -> None:
        """A no-op: psycopg begins a transaction with the first statement."""

    async def step(self, step: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that uses `runner`; cancelled, break the connection."""
        running = asyncio.ensure_future(run_in_thread(lambda: run_without_waiting(step)))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._break()  # the thread may wait for a reply that never comes
            await asyncio.wait([running])
            raise

    def _break(self) -> None:
        with suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as sock:
            sock.shutdown(socket.SHUT_RDWR)

    async def close(self, *, at_once: bool) -> None:  # noqa: ARG002 - the handler's thread may use it
        """Roll back and close, unless the handler's thread is in a statement."""
        await run_in_thread(self._close)

    def _close(self) -> None:
        """Close unless a thread holds the lock of the connection: it is in a statement."""
        if self.connection.lock.acquire(timeout=CLOSE_TIMEOUT_S):
            self.connection.lock.release()
            with suppress(Exception):  # the connection may be broken
                self.connection.rollback()
            self.connection.close()


async def connect_async(address: PostgresUrl, probe: Probe | None) -> HandlerConnection:
    """Open the connection of an async handler, with the default settings of asyncpg."""
    cache = {"statement_cache_size": 0} if address.pooler else {}
    with translated(address):
        connection = await asyncpg.connect(
            address.dsn,
            timeout=CONNECT_TIMEOUT_S,
            connection_class=GuardedAsyncpgConnection,
            server_settings={} if address.pooler else {"application_name": APPLICATION_NAME},
            **cache,
        )
    keep_alive(connection)
    connection.guard = PostgresTransactionGuard()
    return AsyncHandlerConnection(connection, address, probe)


async def connect_blocking(address: PostgresUrl, probe: Probe | None) -> HandlerConnection:
    """Open the connection of a handler in a thread, with the default settings of psycopg.

    Raises RunError if psycopg is not installed.
    """
    connection = await run_in_thread(lambda: _connect_psycopg(address))
    return ThreadHandlerConnection(connection, address, probe)


def _connect_psycopg(address: PostgresUrl) -> Any:
    try:
        import psycopg  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise RunError(PSYCOPG_MISSING) from error
    try:
        connection = _guarded_psycopg_class().connect(
            address.dsn,
            connect_timeout=int(CONNECT_TIMEOUT_S),
            application_name=APPLICATION_NAME,
            **_LIBPQ_TCP_OPTIONS,
        )
    except psycopg.Error as error:
        why = str(error).partition("\n")[0][:200]
        raise StoreUnavailable(f"{address.safe_text} does not answer psycopg: {why}") from error
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    if address.pooler:
        connection.prepare_threshold = None
    return connection


def _guarded_psycopg_class() -> Any:
    import psycopg  # noqa: PLC0415 - an optional dependency

    class GuardedPsycopgCursor(psycopg.Cursor[Any]):
        """A cursor whose statements are checked by the guard of its connection."""

        def execute(self, *args: Any, **kwargs: Any) -> Any:
            with _guarded(self.connection):
                return super().execute(*args, **kwargs)

        def executemany(self, *args: Any, **kwargs: Any) -> Any:
            with _guarded(self.connection):
                return super().executemany(*args, **kwargs)

        def stream(self, *args: Any, **kwargs: Any) -> Any:
            with _guarded(self.connection):
                yield from super().stream(*args, **kwargs)

        def copy(self, *args: Any, **kwargs: Any) -> Any:
            with _guarded(self.connection):
                return super().copy(*args, **kwargs)

    class GuardedPsycopgConnection(psycopg.Connection[Any]):
        """A psycopg connection that refuses commit, rollback and close by the handler."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.guard = PostgresTransactionGuard()
            self.cursor_factory = GuardedPsycopgCursor

        def commit(self) -> None:
            self.guard.refuse_ending()
            super().commit()

        def rollback(self) -> None:
            self.guard.refuse_ending()
            super().rollback()

        def close(self) -> None:
            self.guard.refuse_ending()
            super().close()

        def __enter__(self) -> Any:
            self.guard.refuse_ending()
            return super().__enter__()

    return GuardedPsycopgConnection


@contextmanager
def _guarded(connection: Any) -> Iterator[None]:
    """Refuse a statement after the transaction; note if the statement itself ended it."""
    guard: PostgresTransactionGuard = connection.guard
    if guard.is_active:
        guard.refuse()
    try:
        yield
    finally:
        if guard.is_active and connection.info.transaction_status.name == "IDLE":
            guard.ended_by_handler = True

"""The connections that handlers get: nothing goes through them once their transaction is over."""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol, TypeVar

import asyncpg

from outlast.core.sync_coroutine import run_without_waiting as finished
from outlast.errors import OperatorError, RunError
from outlast.store.postgres.caller_connection import on_a_thread
from outlast.store.postgres.caller_drivers import ForeignAsyncpgRunner, PsycopgRunner
from outlast.store.postgres.connection import CONNECT, translated
from outlast.store.postgres.statements import Probe
from outlast.store.postgres.unit_of_work import StatementRunner
from outlast.store.postgres.url import PostgresUrl

T = TypeVar("T")


BY_HAND: Final = (
    "the handler ended run.transaction() itself; leave commit, rollback and close to Outlast, "
    "which commits it together with the end of the run"
)
NO_DRIVER: Final = (
    "run.transaction() of a handler in a thread needs psycopg, which is not installed; pip install "
    "'psycopg[binary]', or make the handler async"
)
NAME: Final = "outlast handler"
LEAVING: Final = 1.0
"""Seconds that closing a connection may take before it is simply dropped."""


class TransactionGuard:
    """Whether there is still a transaction to write in, and what ended it."""

    def __init__(self) -> None:
        self.is_armed = False
        self.is_over = False
        self.ended_by_hand = False

    def refuse(self) -> None:
        """RunError if nothing may go through any more."""
        if self.ended_by_hand:
            raise RunError(BY_HAND)
        if self.is_over:
            raise RunError("this run.transaction() is over")

    def refuse_ending(self) -> None:
        """RunError to whoever would end it by hand."""
        if self.is_armed:
            self.ended_by_hand = True
            raise RunError(BY_HAND)


class GuardedAsyncpgConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """asyncpg's: counts as closed once its transaction is over, to itself and all its parts."""

    guard: TransactionGuard | None = None

    def is_closed(self) -> bool:
        guard = self.guard
        if super().is_closed() or guard is None or not guard.is_armed:
            return bool(super().is_closed())
        if not self.is_in_transaction():
            guard.ended_by_hand = True
        return guard.is_over or guard.ended_by_hand

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's
        self._refuse_ending()
        await super().close(timeout=timeout)

    async def reset(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's
        self._refuse_ending()
        await super().reset(timeout=timeout)

    def terminate(self) -> None:
        self._refuse_ending()
        super().terminate()

    def _refuse_ending(self) -> None:
        if self.guard is not None:
            self.guard.refuse_ending()


class HandlerConnection(Protocol):
    """A connection as the store holds it while the handler does."""

    connection: Any
    address: PostgresUrl
    lane: StatementRunner

    @property
    def is_within(self) -> bool:
        """Whether a transaction is open on it."""
        ...

    async def begin(self) -> None:
        """Open one."""
        ...

    async def step(self, step: Coroutine[Any, Any, T]) -> T:
        """What a coroutine over `lane` answers."""
        ...

    async def let_go(self, *, at_once: bool) -> None:
        """Undo what is not committed and close it; `at_once`: the server has done so."""
        ...


class AwaitedHand:
    """For a handler that awaits: asyncpg, on the worker's loop."""

    def __init__(self, connection: Any, address: PostgresUrl, probe: Probe | None) -> None:
        self.connection = connection
        self.address = address
        self.lane: StatementRunner = ForeignAsyncpgRunner(connection, address.schema, probe)

    @property
    def is_within(self) -> bool:
        return bool(self.connection.is_in_transaction())

    async def begin(self) -> None:
        # By asyncpg's own means, or it would not make savepoints of the handler's transactions.
        await self.connection.transaction().start()

    async def step(self, step: Coroutine[Any, Any, T]) -> T:
        return await step

    async def let_go(self, *, at_once: bool) -> None:
        if at_once:
            self.connection.terminate()
            return
        if self.is_within:
            await self.lane.change("unit_of_work.rollback", {})
        await self.connection.close(timeout=LEAVING)


class AsyncHandlerConnection:
    """For a handler in a thread: psycopg, asked on another thread while that one waits for us."""

    def __init__(self, connection: Any, address: PostgresUrl, probe: Probe | None) -> None:
        self.connection = connection
        self.address = address
        self.lane: StatementRunner = PsycopgRunner(connection, address.schema, probe)

    @property
    def is_within(self) -> bool:
        return bool(self.connection.info.transaction_status.name in {"INTRANS", "INERROR"})

    async def begin(self) -> None:
        """Nothing: psycopg begins by itself."""

    async def step(self, step: Coroutine[Any, Any, T]) -> T:
        return await on_a_thread(lambda: finished(step))

    async def let_go(self, *, at_once: bool) -> None:  # noqa: ARG002 - its own thread may be in it
        await on_a_thread(self._close)

    def _close(self) -> None:
        """Not under the feet of a thread that is in the middle of a statement."""
        if self.connection.lock.acquire(timeout=LEAVING):
            self.connection.lock.release()
            with suppress(Exception):  # it may be broken already
                self.connection.rollback()
            self.connection.close()


async def awaited(address: PostgresUrl, probe: Probe | None) -> HandlerConnection:
    """A connection for a handler that awaits: as asyncpg makes them, without settings of ours."""
    cache = {"statement_cache_size": 0} if address.pooler else {}
    with translated(address):
        connection = await asyncpg.connect(
            address.dsn,
            timeout=CONNECT,
            connection_class=GuardedAsyncpgConnection,
            server_settings={} if address.pooler else {"application_name": NAME},
            **cache,
        )
    connection.guard = TransactionGuard()
    return AwaitedHand(connection, address, probe)


async def blocking(address: PostgresUrl, probe: Probe | None) -> HandlerConnection:
    """A connection for a handler in a thread, as psycopg makes them."""
    connection = await on_a_thread(lambda: _connected(address))
    return AsyncHandlerConnection(connection, address, probe)


def _connected(address: PostgresUrl) -> Any:
    try:
        import psycopg  # noqa: PLC0415 - only who needs it has it
    except ImportError as error:
        raise RunError(NO_DRIVER) from error
    try:
        connection = _blocking_class().connect(
            address.dsn, connect_timeout=int(CONNECT), application_name=NAME
        )
    except psycopg.Error as error:
        why = str(error).partition("\n")[0][:200]
        raise OperatorError(f"{address.safe_text} cannot be reached by psycopg: {why}") from error
    if address.pooler:
        connection.prepare_threshold = None
    return connection


def _blocking_class() -> Any:
    import psycopg  # noqa: PLC0415 - only who needs it has it

    class BlockingCursor(psycopg.Cursor[Any]):
        """A cursor whose statements ask its connection's guard first."""

        def execute(self, *args: Any, **kwargs: Any) -> Any:
            with _statement(self.connection):
                return super().execute(*args, **kwargs)

        def executemany(self, *args: Any, **kwargs: Any) -> Any:
            with _statement(self.connection):
                return super().executemany(*args, **kwargs)

        def stream(self, *args: Any, **kwargs: Any) -> Any:
            with _statement(self.connection):
                yield from super().stream(*args, **kwargs)

        def copy(self, *args: Any, **kwargs: Any) -> Any:
            with _statement(self.connection):
                return super().copy(*args, **kwargs)

    class Blocking(psycopg.Connection[Any]):
        """psycopg's: begins by itself, so what is sent too late is at least never committed."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.guard = TransactionGuard()
            self.cursor_factory = BlockingCursor

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

    return Blocking


@contextmanager
def _statement(connection: Any) -> Iterator[None]:
    """Around every statement: refused when the transaction is over, and a look whether it is."""
    guard: TransactionGuard = connection.guard
    if guard.is_armed:
        guard.refuse()
    try:
        yield
    finally:
        if guard.is_armed and connection.info.transaction_status.name == "IDLE":
            guard.ended_by_hand = True

"""Watches statements without a reply: breaks a silent connection, waits for a slow server."""

import asyncio
import fcntl
import logging
import struct
import termios
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple

import asyncpg

from outlast.errors import OperatorError
from outlast.store.postgres.connection import CONNECT_TIMEOUT_S, connect, socket_of, translated
from outlast.store.postgres.unit_of_work import AsyncpgRunner
from outlast.store.postgres.url import PostgresUrl

log = logging.getLogger("outlast.store")

CHECK_AFTER_S: Final = 3.0
"""Seconds without a reply after which a statement is checked over a new connection."""

MIN_CHECK_S: Final = 0.5
"""Seconds between two checks, at least."""

CONFIRM_AFTER_S: Final = 0.5
"""Seconds after which a connection that seems silent is checked once more."""

MIN_LIMIT_S: Final = 5.0
"""Seconds without a reply after which a connection is given up unchecked, at least: a busy machine
must not break its own connections."""


class SessionKey(NamedTuple):
    """A session of the server: process id and start time in microseconds."""

    pid: int
    since: int


class StatementState(Enum):
    """What the check of a statement without a reply found."""

    WORKING = "working"  # the server runs it, or is still being sent it
    SILENT = "silent"  # the server waits for a statement, or has ended the session
    UNKNOWN = "unknown"  # the server cannot be reached, or is behind a pooler


class StatementWatch:
    """Watches the statements of one connection, one at a time.

    If a statement gets no reply, the server is asked over a new connection whether it runs it. A
    connection that is silent is terminated, and the statement fails with a connection error. If
    that cannot be found out, the connection is terminated after `limit` seconds.
    `session` is None behind a pooler, where a connection has no session of its own.
    """

    def __init__(
        self, connection: asyncpg.Connection, address: PostgresUrl, session: SessionKey | None
    ) -> None:
        self._connection = connection
        self._address = address
        self.session = session
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._statements = 0  # the number of the current one
        self._checks: set[asyncio.Task[None]] = set()
        self.limit_to(None)

    def limit_to(self, seconds: float | None) -> None:
        """Set the limit, `address.wait` by default; a statement is checked before it."""
        wanted = self._address.wait if seconds is None else seconds
        self._limit = max(MIN_LIMIT_S, wanted)
        self._interval = min(CHECK_AFTER_S, max(MIN_CHECK_S, wanted / 2))

    def __enter__(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._start_checking)

    def __exit__(self, *_: object) -> None:
        self._statements += 1
        if self._timer is not None:
            self._timer.cancel()

    async def stopped(self) -> None:
        """Wait for a check under way. It is never cancelled: the driver would leak its socket."""
        if self._checks:
            await asyncio.wait(self._checks)

    def _start_checking(self) -> None:
        task = asyncio.create_task(self._check(), name="outlast-statement-watch")
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _check(self) -> None:
        statement, unsent = self._statements, _unsent(self._connection)
        since = self._loop.time() - self._interval
        while statement == self._statements:
            state = await self._look_twice(statement)
            if statement != self._statements:
                return  # it was answered meanwhile
            before, unsent = unsent, _unsent(self._connection)
            if state is StatementState.SILENT and unsent < before:
                state = StatementState.WORKING
            is_over = self._loop.time() - since >= self._limit
            if state is StatementState.SILENT or (state is StatementState.UNKNOWN and is_over):
                log.warning("connection without replies, opening another state=%s", state.value)
                self._connection.terminate()
                return
            await asyncio.sleep(self._interval)

    async def _look_twice(self, statement: int) -> StatementState:
        """Look again if it seems silent: its reply may be on the way to a busy client."""
        state = await self._look()
        if state is StatementState.SILENT and statement == self._statements:
            await asyncio.sleep(min(self._interval, CONFIRM_AFTER_S))
            state = await self._look()
        return state

    async def _look(self) -> StatementState:
        """Ask the server about the session over a new connection."""
        try:
            other = await connect(self._address, deadline=CONNECT_TIMEOUT_S)
        except OperatorError as error:
            full = isinstance(error.__cause__, asyncpg.TooManyConnectionsError)
            return StatementState.WORKING if full else StatementState.UNKNOWN
        try:
            with translated(self._address):
                return await self._ask(AsyncpgRunner(other, self._address.schema))
        except OperatorError:
            return StatementState.UNKNOWN
        finally:
            other.terminate()

    async def _ask(self, runner: AsyncpgRunner) -> StatementState:
        if self.session is None:
            return StatementState.UNKNOWN
        found = await runner.fetch("sessions.is_working", self.session._asdict())
        return StatementState.WORKING if found and found[0][0] else StatementState.SILENT


async def own_session(connection: asyncpg.Connection, address: PostgresUrl) -> SessionKey | None:
    """Return the session of a new connection; None behind a pooler."""
    if address.pooler:
        return None
    [(pid, since)] = await AsyncpgRunner(connection, address.schema).fetch("sessions.own", {})
    return SessionKey(pid, since)


def _unsent(connection: asyncpg.Connection) -> int:
    """Return the number of bytes that the other end has not received yet, as far as known."""
    waiting: int = connection._transport.get_write_buffer_size()  # noqa: SLF001 - asyncpg has no public access
    with suppress(OSError, AttributeError, ValueError):
        waiting += _send_queue(socket_of(connection).fileno())
    return waiting


def _send_queue(fileno: int) -> int:
    [size] = struct.unpack("i", fcntl.ioctl(fileno, termios.TIOCOUTQ, struct.pack("i", 0)))
    return int(size)

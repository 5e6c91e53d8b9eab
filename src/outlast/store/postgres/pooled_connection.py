"""One connection of the pool: used by one task at a time, watched, and reopened when it breaks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from outlast.store.postgres.connection import (
    CONNECTION_ERRORS,
    connect,
    is_connection_error,
)
from outlast.store.postgres.placeholders import Probe
from outlast.store.postgres.statement_watch import SessionKey, StatementWatch, own_session
from outlast.store.postgres.unit_of_work import AsyncpgRunner
from outlast.store.postgres.url import PostgresUrl

MAX_STATEMENT_S: Final = 600.0
"""Seconds that a statement may take while the server works on it."""

END_TIMEOUT_MS: Final = 5000
"""Milliseconds within which the session of a broken connection must end."""

MAX_LOST_SESSIONS: Final = 10
"""Number of sessions of broken connections that are remembered."""


class PooledConnection:
    """One connection, used by one task at a time and reopened when it breaks.

    A new connection first ends the session of the broken one: a statement that the server still
    runs there cannot commit later, and its locks are free. With `must_end`, the connection is
    unusable until that session has ended.
    """

    def __init__(
        self,
        address: PostgresUrl,
        probe: Probe | None,
        *,
        plans_once: bool = False,
        must_end: bool = False,
    ) -> None:
        self._address = address
        self._plans_once = plans_once
        self._must_end = must_end
        self._probe = probe
        self._turn = asyncio.Lock()
        self._runner: AsyncpgRunner | None = None
        self._watch: StatementWatch | None = None
        self._lost: list[SessionKey] = []
        self._stopping: list[StatementWatch] = []  # those of broken connections

    @asynccontextmanager
    async def acquire(self, *, limit: float | None = None) -> AsyncIterator[AsyncpgRunner]:
        """Yield the connection for exclusive use; a broken one is replaced on the next use.

        `limit`: seconds without a reply after which the connection is given up if the server
        cannot be asked; `address.wait` by default.
        """
        async with self._turn:
            runner = await self._open()
            if self._watch is not None:
                self._watch.limit_to(limit)
            try:
                yield runner
            except asyncio.CancelledError:
                self._drop()  # a statement may be half sent
                raise
            except CONNECTION_ERRORS as error:
                if is_connection_error(error):
                    self._drop()
                raise

    async def _open(self) -> AsyncpgRunner:
        if self._runner is None or self._runner.connection.is_closed():
            self._drop()
            self._runner, self._watch = await open_watched(
                self._address, self._probe, plans_once=self._plans_once
            )
        while self._lost:
            await self._end(self._runner, self._lost[0])
            self._lost.pop(0)
        return self._runner

    async def _end(self, runner: AsyncpgRunner, session: SessionKey) -> None:
        try:
            values = {**session._asdict(), "millis": END_TIMEOUT_MS}
            found = await AsyncpgRunner(runner.connection, self._address.schema).fetch(
                "sessions.end", values
            )
        except BaseException:
            self._drop()
            raise
        if self._must_end and found and not found[0][0]:
            raise ConnectionError(
                f"session {session.pid} of a broken connection still runs; end it with "
                f"pg_terminate_backend({session.pid})"
            )

    def _drop(self) -> None:
        if self._runner is not None:
            self._runner.connection.terminate()
            self._runner = None
        watch, self._watch = self._watch, None
        if watch is not None:
            self._stopping = [*self._stopping, watch][-MAX_LOST_SESSIONS:]
            if watch.session is not None:
                self._lost = [*self._lost, watch.session][-MAX_LOST_SESSIONS:]

    async def close(self) -> None:
        """Wait for the current user and close the connection; idempotent."""
        async with self._turn:
            if self._runner is not None and not self._runner.connection.is_closed():
                with suppress(*CONNECTION_ERRORS):
                    await self._runner.connection.close(timeout=1)
            if self._watch is not None:
                self._stopping.append(self._watch)
            self._runner = self._watch = None
            for watch in self._stopping:
                await watch.stopped()

    def terminate(self) -> None:
        """Close the connection without waiting, from any thread: its loop may be closed."""
        with suppress(Exception):
            self._drop()


async def open_watched(
    address: PostgresUrl, probe: Probe | None, *, plans_once: bool = False
) -> tuple[AsyncpgRunner, StatementWatch]:
    """Open a connection whose statements are watched."""
    connection = await connect(address, plans_once=plans_once, deadline=MAX_STATEMENT_S)
    try:
        watch = StatementWatch(connection, address, await own_session(connection, address))
    except BaseException:
        connection.terminate()
        raise
    return AsyncpgRunner(connection, address.schema, probe, watch), watch

"""Connections that outlive their store: a new one plans each statement anew, longer than a test."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import asyncpg

from outlast.store.postgres import pool, pooled_connection
from outlast.store.postgres import store as store_module
from outlast.store.postgres.connection import connect
from outlast.store.postgres.placeholders import Probe
from outlast.store.postgres.pooled_connection import PooledConnection
from outlast.store.postgres.statement_watch import StatementWatch, own_session
from outlast.store.postgres.unit_of_work import AsyncpgRunner
from outlast.store.postgres.url import PostgresUrl, parse_url
from support.corruption.postgres import empty_on


@asynccontextmanager
async def kept_connections(url: str) -> AsyncIterator["Kept"]:
    """A store there, of this loop, that is closed within the block leaves its own to the next."""
    kept = Kept(parse_url(url))
    with (
        patch.object(pooled_connection, "connect", kept.connect),
        patch.object(pool, "PooledConnection", kept.line),
        patch.object(store_module, "open_watched", kept.lend),
    ):
        yield kept
    await kept.close()


class Kept:
    """What was left, by how it plans."""

    def __init__(self, where: PostgresUrl) -> None:
        self._address = where
        self._loop = asyncio.get_running_loop()
        self.left: dict[bool, list[asyncpg.Connection]] = defaultdict(list)

    async def connect(
        self, where: PostgresUrl, *, plans_once: bool = False, **options: Any
    ) -> asyncpg.Connection:
        left = self.left[plans_once] if self.is_of(where) else []
        while left:
            connection = left.pop()
            if not connection.is_closed():
                return connection
        return await connect(where, plans_once=plans_once, **options)

    async def lend(
        self, where: PostgresUrl, probe: Probe | None
    ) -> tuple[AsyncpgRunner, StatementWatch]:
        """For a moment: to close it is to give it back."""
        connection = await self.connect(where)
        watch = StatementWatch(connection, where, await own_session(connection, where))
        lent = _Lent(connection, self.left[False]) if self.is_of(where) else connection
        return AsyncpgRunner(lent, where.schema, probe, watch), watch

    async def empty(self) -> None:
        """Take out everything that is stored there."""
        connection = await self.connect(self._address)
        await empty_on(connection, self._address.schema)
        self.left[False].append(connection)

    def line(self, where: PostgresUrl, probe: Probe | None, **options: bool) -> PooledConnection:
        return _KeptLine(self, where, probe, **options)

    def is_of(self, where: PostgresUrl) -> bool:
        """Whether it goes there, from the loop that all of them belong to."""
        return where.dsn == self._address.dsn and asyncio.get_running_loop() is self._loop

    async def close(self) -> None:
        for connections in self.left.values():
            for connection in connections:
                await connection.close(timeout=1)


class _Lent:
    def __init__(self, connection: asyncpg.Connection, left: list[asyncpg.Connection]) -> None:
        self._connection = connection
        self._left = left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def close(self, *, timeout: float) -> None:  # noqa: ASYNC109 - as asyncpg has it
        self._left.append(self._connection)


class _KeptLine(PooledConnection):
    def __init__(
        self, kept: Kept, where: PostgresUrl, probe: Probe | None, **options: bool
    ) -> None:
        super().__init__(where, probe, **options)
        self._kept = kept

    async def close(self) -> None:
        if not self._kept.is_of(self._address):
            await super().close()
            return
        async with self._turn:
            runner, self._runner, self._watch = self._runner, None, None
            if runner is not None:
                self._kept.left[self._plans_once].append(runner.connection)

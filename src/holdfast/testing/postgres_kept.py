"""Connections that outlive their store: a new one plans each statement anew, longer than a test."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import patch

import asyncpg

from holdfast.store.postgres import lines
from holdfast.store.postgres.address import Address, address
from holdfast.store.postgres.database import connect
from holdfast.store.postgres.lines import Line
from holdfast.store.postgres.statements import Probe


@asynccontextmanager
async def kept_connections(url: str) -> AsyncIterator[None]:
    """A store there, of this loop, that is closed within the block leaves its own to the next."""
    kept = _Kept(address(url).dsn)
    with patch.object(lines, "connect", kept.connect), patch.object(lines, "Line", kept.line):
        yield
    await kept.close()


class _Kept:
    """What was left, by how it plans."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._loop = asyncio.get_running_loop()
        self.left: dict[bool, list[asyncpg.Connection]] = defaultdict(list)

    async def connect(self, where: Address, *, plans_once: bool = False) -> asyncpg.Connection:
        left = self.left[plans_once] if self.is_of(where) else []
        while left:
            connection = left.pop()
            if not connection.is_closed():
                return connection
        return await connect(where, plans_once=plans_once)

    def line(self, where: Address, probe: Probe | None, *, plans_once: bool) -> Line:
        return _KeptLine(self, where, probe, plans_once=plans_once)

    def is_of(self, where: Address) -> bool:
        """Whether it goes there, from the loop that all of them belong to."""
        return where.dsn == self._dsn and asyncio.get_running_loop() is self._loop

    async def close(self) -> None:
        for connections in self.left.values():
            for connection in connections:
                await connection.close(timeout=1)


class _KeptLine(Line):
    def __init__(
        self, kept: _Kept, where: Address, probe: Probe | None, *, plans_once: bool
    ) -> None:
        super().__init__(where, probe, plans_once=plans_once)
        self._kept = kept

    async def close(self) -> None:
        if not self._kept.is_of(self._address):
            await super().close()
            return
        async with self._turn:
            lane, self._lane = self._lane, None
            if lane is not None:
                self._kept.left[self._plans_once].append(lane.connection)

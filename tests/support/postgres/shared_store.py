"""PostgreSQL stores for tests that share one server."""

import asyncio
from typing import Final

from outlast.core.event import EventRecord
from outlast.store.postgres.store import PostgresStore
from support.corruption.postgres import empty

_XMIN: Final = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_XMAX: Final = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


class Settled(PostgresStore):
    """A store whose stream waits for older transactions of other tests on the server."""

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        async with self._pool.connection("read-0").acquire() as lane:
            ours = await lane.connection.fetchval(_XMAX)
            while await lane.connection.fetchval(_XMIN) < ours:  # noqa: ASYNC110 - not ours to tell
                await asyncio.sleep(0.001)
        return await super().stream(after=after, limit=limit)


class Emptied(Settled):
    """A store whose tables are emptied when it is first opened."""

    _times = 0

    async def open(self) -> None:
        await super().open()
        if not self._times:
            await empty(self.address)
        self._times += 1

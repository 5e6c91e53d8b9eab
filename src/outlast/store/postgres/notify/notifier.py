"""Telling other processes of commits: one NOTIFY at a time, what comes meanwhile goes together."""

import asyncio
import logging
from typing import Final

from outlast.store.contract.notifications import Notification
from outlast.store.postgres.connection import connect
from outlast.store.postgres.notify.channels import encode, merged
from outlast.store.postgres.unit_of_work import AsyncpgRunner
from outlast.store.postgres.url import PostgresUrl

log = logging.getLogger("outlast.store")

GAP: Final = 0.01
"""Seconds from one NOTIFY to the next: each is a commit, and all commits with one wait in line."""

NOTHING: Final = Notification()


class PgNotifier:
    """Lives on one loop. A hint that cannot be sent is lost: polling makes things true."""

    def __init__(self, address: PostgresUrl) -> None:
        self._address = address
        self._lane: AsyncpgRunner | None = None
        self._turn = asyncio.Lock()
        self._pending = NOTHING
        self._task: asyncio.Task[None] | None = None

    def tell(self, hint: Notification) -> None:
        """Never waits."""
        self._pending = merged(self._pending, hint)
        if self._task is None:
            self._task = asyncio.create_task(self._send_all(), name="outlast-tell")

    async def send(self, said: dict[str, str]) -> None:
        """Send that now; whatever is in the way is raised."""
        async with self._turn:  # or two who come at once would open two, and one be nobody's
            if self._lane is None or self._lane.connection.is_closed():
                connection = await connect(self._address)
                self._lane = AsyncpgRunner(connection, self._address.schema)
            told = {"channels": [*said], "payloads": [*said.values()]}
            await self._lane.fetch("notify.send", told)

    async def close(self) -> None:
        """What is under way is still sent, if that takes no longer than a second."""
        if (task := self._task) is not None:
            await asyncio.wait([task], timeout=1)
            task.cancel()  # or a connection that comes later would be nobody's
            await asyncio.wait([task])
        if self._lane is not None:
            self._lane.connection.terminate()

    async def _send_all(self) -> None:
        try:
            while self._pending != NOTHING:
                hint, self._pending = self._pending, NOTHING
                await self._send(hint)
                await asyncio.sleep(GAP)
        finally:
            self._task = None

    async def _send(self, hint: Notification) -> None:
        try:
            await self.send(encode(self._address.schema, hint))
        except Exception as error:  # noqa: BLE001 - hints are only hints
            log.debug("others were not told: %s", error)
            if self._lane is not None:
                self._lane.connection.terminate()

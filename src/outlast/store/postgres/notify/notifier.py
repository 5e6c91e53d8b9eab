"""Sends NOTIFY, one at a time; notifications that arrive meanwhile are merged."""

import asyncio
import logging
from typing import Final

from outlast.store.contract.notifications import Notification
from outlast.store.postgres.connection import connect
from outlast.store.postgres.notify.channels import encode, merged
from outlast.store.postgres.unit_of_work import AsyncpgRunner
from outlast.store.postgres.url import PostgresUrl

log = logging.getLogger("outlast.store")

NOTIFY_INTERVAL_S: Final = 0.01
"""Seconds between two NOTIFY: the server commits them one after the other."""

NOTHING: Final = Notification()


class PgNotifier:
    """Sends notifications from one loop. An unsent one is lost: polling finds the work."""

    def __init__(self, address: PostgresUrl) -> None:
        self._address = address
        self._runner: AsyncpgRunner | None = None
        self._turn = asyncio.Lock()
        self._pending = NOTHING
        self._task: asyncio.Task[None] | None = None

    def add(self, notification: Notification) -> None:
        """Add a notification to the next NOTIFY, without waiting."""
        self._pending = merged(self._pending, notification)
        if self._task is None:
            self._task = asyncio.create_task(self._send_all(), name="outlast-notify")

    async def send(self, payloads: dict[str, str]) -> None:
        """Send payloads by channel now; raises the error of the driver."""
        async with self._turn:  # two concurrent calls must not open two connections
            if self._runner is None or self._runner.connection.is_closed():
                connection = await connect(self._address)
                self._runner = AsyncpgRunner(connection, self._address.schema)
            values = {"channels": [*payloads], "payloads": [*payloads.values()]}
            await self._runner.fetch("notify.send", values)

    async def close(self) -> None:
        """Send what is pending, for up to one second, and close the connection."""
        if (task := self._task) is not None:
            await asyncio.wait([task], timeout=1)
            task.cancel()  # a connection that opens later would never be closed
            await asyncio.wait([task])
        if self._runner is not None:
            self._runner.connection.terminate()

    async def _send_all(self) -> None:
        try:
            while self._pending != NOTHING:
                notification, self._pending = self._pending, NOTHING
                await self._send(notification)
                await asyncio.sleep(NOTIFY_INTERVAL_S)
        finally:
            self._task = None

    async def _send(self, notification: Notification) -> None:
        try:
            await self.send(encode(self._address.schema, notification))
        except Exception as error:  # noqa: BLE001 - polling finds the work
            log.debug("notification not sent: %s", error)
            if self._runner is not None:
                self._runner.connection.terminate()

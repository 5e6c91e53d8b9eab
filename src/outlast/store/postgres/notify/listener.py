"""Hearing what other processes commit: a connection that listens, opened again when it breaks."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import asyncpg

from outlast.store.contract.notifications import Notification, Topic
from outlast.store.postgres.dedicated_connection import DedicatedConnection
from outlast.store.postgres.notify.channels import EVERYTHING, channel, decode
from outlast.store.postgres.notify.notifier import PgNotifier
from outlast.store.postgres.url import PostgresUrl

log = logging.getLogger("outlast.store")

SOON: Final = 0.1
LATE: Final = 5.0
"""Seconds between two tries to connect, at first and at most."""

PATIENCE: Final = 2.0
"""Seconds within which we must hear ourselves."""

LISTEN_UNAVAILABLE: Final = (
    "no notifications arrive here (a pooler or a standby is in between?): idle workers find work "
    "by polling alone; let workers connect straight to the server, or write ?notify=false"
)


class PgListener:
    """Lives on one loop. `wanted` says for what, `told` is called with what was heard."""

    def __init__(
        self,
        address: PostgresUrl,
        voice: PgNotifier,
        *,
        wanted: Callable[[], frozenset[Topic]],
        told: Callable[[Notification], None],
    ) -> None:
        self._address = address
        self._voice = voice
        self._wanted = wanted
        self._told = told
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._has_warned = False
        self.is_deaf = False

    def tune(self) -> None:
        """Somebody came or left."""
        self._changed.set()
        if self._task is None and self._wanted():
            self._task = asyncio.create_task(self._listen(), name="outlast-listen")

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _listen(self) -> None:
        pause, is_first = SOON, True
        try:
            while self._wanted():
                try:
                    await self._hear(is_first=is_first)
                    pause, is_first = SOON, False
                except Exception as error:  # noqa: BLE001 - polling goes on, and so do we
                    self._cannot(error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LATE)
        finally:
            self._task = None

    async def _hear(self, *, is_first: bool) -> None:
        """Until nobody wants to hear any more, or the connection breaks."""
        session = await DedicatedConnection.open(self._address)
        try:
            session.connection.add_termination_listener(lambda _: self._changed.set())
            on: set[Topic] = set()
            checked = False
            while self._wanted() and not session.connection.is_closed():
                self._changed.clear()
                await self._follow(session.connection, on)
                if not is_first:
                    self._told(EVERYTHING)
                    is_first = True
                if not checked:
                    checked = True
                    self._judge(
                        await notify_roundtrip_works(session.connection, self._address, self._voice)
                    )
                    continue
                await self._changed.wait()
        finally:
            await session.close()

    async def _follow(self, connection: asyncpg.Connection, on: set[Topic]) -> None:
        wanted = self._wanted()
        for topic in wanted - on:
            await connection.add_listener(channel(self._address.schema, topic), self._received)
        for topic in on - wanted:
            await connection.remove_listener(channel(self._address.schema, topic), self._received)
        on.clear()
        on.update(wanted)

    def _received(self, _: Any, __: int, name: str, text: str) -> None:
        topic = Topic(name.removeprefix(f"{self._address.schema}_"))
        self._told(decode(topic, text))

    def _judge(self, hears: bool) -> None:
        self.is_deaf = not hears
        if self.is_deaf and not self._has_warned:
            self._has_warned = True
            log.warning("%s: %s", self._address.safe_text, LISTEN_UNAVAILABLE)

    def _cannot(self, error: Exception) -> None:
        log.debug("cannot listen: %s", error)
        if isinstance(error, asyncpg.PostgresError):  # the server is there, and refuses
            self._judge(False)


async def notify_roundtrip_works(
    connection: asyncpg.Connection, address: PostgresUrl, voice: PgNotifier
) -> bool:
    """Whether what is told on another connection arrives on this one."""
    name, arrived = f"{address.schema}_echo", asyncio.Event()

    def echo(*_: object) -> None:
        arrived.set()

    await connection.add_listener(name, echo)
    try:
        await voice.send({name: ""})
        await asyncio.wait_for(arrived.wait(), PATIENCE)
    except TimeoutError:
        return False
    else:
        return True
    finally:
        await connection.remove_listener(name, echo)

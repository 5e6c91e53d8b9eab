"""Receives notifications on a LISTEN connection, which is reopened when it breaks."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import asyncpg

from outlast.store.contract.notifications import Notification, Topic
from outlast.store.postgres.dedicated_connection import DedicatedConnection
from outlast.store.postgres.notify.channels import EVERYTHING, channel, decode, topic_of
from outlast.store.postgres.notify.notifier import PgNotifier
from outlast.store.postgres.url import PostgresUrl

log = logging.getLogger("outlast.store")

FIRST_RECONNECT_PAUSE_S: Final = 0.1
MAX_RECONNECT_PAUSE_S: Final = 5.0
"""Seconds between two attempts to connect, at first and at most."""

ROUNDTRIP_TIMEOUT_S: Final = 2.0
"""Seconds within which a NOTIFY must arrive on the LISTEN connection."""

LISTEN_UNAVAILABLE: Final = (
    "notifications do not arrive (behind a pooler or a standby?): idle workers find work by "
    "polling alone; connect workers directly to the server, or write ?notify=false"
)


class PgListener:
    """Listens on one loop to the `wanted` topics; `deliver` receives each notification."""

    def __init__(
        self,
        address: PostgresUrl,
        notifier: PgNotifier,
        *,
        wanted: Callable[[], frozenset[Topic]],
        deliver: Callable[[Notification], None],
    ) -> None:
        self._address = address
        self._notifier = notifier
        self._wanted = wanted
        self._deliver = deliver
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._has_warned = False
        self.is_unavailable = False

    def update_topics(self) -> None:
        """Follow the wanted topics, which have changed."""
        self._changed.set()
        if self._task is None and self._wanted():
            self._task = asyncio.create_task(self._listen(), name="outlast-listen")

    def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()

    async def _listen(self) -> None:
        pause, is_first = FIRST_RECONNECT_PAUSE_S, True
        try:
            while self._wanted():
                try:
                    await self._receive(is_first=is_first)
                    pause, is_first = FIRST_RECONNECT_PAUSE_S, False
                except Exception as error:  # noqa: BLE001 - polling finds the work meanwhile
                    self._failed(error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, MAX_RECONNECT_PAUSE_S)
        finally:
            self._task = None

    async def _receive(self, *, is_first: bool) -> None:
        """Receive until no topic is wanted, or the connection breaks."""
        session = await DedicatedConnection.open(self._address)
        try:
            session.connection.add_termination_listener(lambda _: self._changed.set())
            followed: set[Topic] = set()
            checked = False
            while self._wanted() and not session.connection.is_closed():
                self._changed.clear()
                await self._subscribe(session.connection, followed)
                if not is_first:
                    self._deliver(EVERYTHING)
                    is_first = True
                if not checked:
                    checked = True
                    self._set_available(
                        await notify_roundtrip_works(
                            session.connection, self._address, self._notifier
                        )
                    )
                    continue
                await self._changed.wait()
        finally:
            await session.close()

    async def _subscribe(self, connection: asyncpg.Connection, followed: set[Topic]) -> None:
        wanted = self._wanted()
        for topic in wanted - followed:
            await connection.add_listener(channel(self._address.schema, topic), self._received)
        for topic in followed - wanted:
            await connection.remove_listener(channel(self._address.schema, topic), self._received)
        followed.clear()
        followed.update(wanted)

    def _received(self, _: Any, __: int, name: str, text: str) -> None:
        self._deliver(decode(topic_of(name), text))

    def _set_available(self, arrives: bool) -> None:
        self.is_unavailable = not arrives
        if self.is_unavailable and not self._has_warned:
            self._has_warned = True
            log.warning("%s: %s", self._address.safe_text, LISTEN_UNAVAILABLE)

    def _failed(self, error: Exception) -> None:
        log.debug("listen failed: %s", error)
        if isinstance(error, asyncpg.PostgresError):  # the server is available and refuses
            self._set_available(False)


async def notify_roundtrip_works(
    connection: asyncpg.Connection, address: PostgresUrl, notifier: PgNotifier
) -> bool:
    """Return whether a NOTIFY of another connection arrives on this one."""
    name, arrived = channel(address.schema, "echo"), asyncio.Event()

    def echo(*_: object) -> None:
        arrived.set()

    await connection.add_listener(name, echo)
    try:
        await notifier.send({name: ""})
        await asyncio.wait_for(arrived.wait(), ROUNDTRIP_TIMEOUT_S)
    except TimeoutError:
        return False
    else:
        return True
    finally:
        await connection.remove_listener(name, echo)

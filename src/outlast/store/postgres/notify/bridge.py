"""Both ways of the wake-ups between processes that share a database."""

import asyncio
from collections.abc import Callable

from outlast.concurrency import LazyLoopThread
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.postgres.dedicated_connection import DedicatedConnection
from outlast.store.postgres.notify.listener import (
    LISTEN_UNAVAILABLE,
    PgListener,
    notify_roundtrip_works,
)
from outlast.store.postgres.notify.notifier import PgNotifier
from outlast.store.postgres.url import PostgresUrl


class PgNotificationBridge:
    """Tells other processes of commits, and hears of theirs while somebody here listens.

    Any thread may call it. The work is done on the thread aside, which begins with the first need.
    """

    def __init__(
        self,
        address: PostgresUrl,
        aside: LazyLoopThread,
        *,
        wanted: Callable[[], frozenset[Topic]],
        heard: Callable[[Notification], None],
    ) -> None:
        self._address = address
        self._aside = aside
        self._wanted = wanted
        self._heard = heard
        self._is_closed = False
        self._ends: tuple[PgNotifier, PgListener] | None = None

    def publish(self, hint: Notification) -> None:
        if hint.topics and not self._is_closed:
            self._aside.call(lambda: self._both[0].tell(hint))

    def update_topics(self) -> None:
        if not self._is_closed and (self._ends is not None or self._wanted()):
            self._aside.call(lambda: self._both[1].tune())

    def close(self) -> None:
        self._is_closed = True
        if self._ends is not None:
            self._aside.run(self._close()).result()

    async def health_warnings(self) -> list[str]:
        """Whether a NOTIFY arrives, tried now."""
        hears = await asyncio.wrap_future(self._aside.run(self._try()))
        return [] if hears else [LISTEN_UNAVAILABLE]

    @property
    def _both(self) -> tuple[PgNotifier, PgListener]:
        """Made on the thread aside, where alone they are used."""
        if self._ends is None:
            voice = PgNotifier(self._address)
            ear = PgListener(self._address, voice, wanted=self._wanted_now, told=self._heard)
            self._ends = voice, ear
        return self._ends

    def _wanted_now(self) -> frozenset[Topic]:
        return frozenset() if self._is_closed else self._wanted()

    async def _try(self) -> bool:
        session = await DedicatedConnection.open(self._address)
        try:
            return await notify_roundtrip_works(session.connection, self._address, self._both[0])
        finally:
            await session.close()

    async def _close(self) -> None:
        voice, ear = self._both
        ear.close()
        await voice.close()


class DisabledBridge:
    """For `?notify=false`: a process hears its own commits; those of others it finds by polling."""

    def publish(self, hint: Notification) -> None:
        """Tells nobody."""

    def update_topics(self) -> None:
        """Hears nobody."""

    def close(self) -> None:
        """Has nothing to let go of."""

    async def health_warnings(self) -> list[str]:
        return []

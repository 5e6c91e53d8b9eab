"""Notifications between processes: listener and notifier on the loop thread."""

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
    """Sends notifications of commits, and receives those of others while there are subscribers.

    Thread-safe. The work is done on the loop thread, which starts with the first use.
    """

    def __init__(
        self,
        address: PostgresUrl,
        loop_thread: LazyLoopThread,
        *,
        wanted: Callable[[], frozenset[Topic]],
        deliver: Callable[[Notification], None],
    ) -> None:
        self._address = address
        self._loop_thread = loop_thread
        self._wanted = wanted
        self._deliver = deliver
        self._is_closed = False
        self._ends: tuple[PgNotifier, PgListener] | None = None

    def publish(self, notification: Notification) -> None:
        """Send a notification to other processes, without waiting."""
        if notification.topics and not self._is_closed:
            self._loop_thread.call(lambda: self._both[0].add(notification))

    def update_topics(self) -> None:
        """Follow the topics that subscribers want now."""
        if not self._is_closed and (self._ends is not None or self._wanted()):
            self._loop_thread.call(lambda: self._both[1].update_topics())

    def close(self) -> None:
        """Send what is pending and close both connections."""
        self._is_closed = True
        if self._ends is not None:
            self._loop_thread.run(self._close()).result()

    async def health_warnings(self) -> list[str]:
        """Send a NOTIFY and return a warning if it does not arrive."""
        arrives = await asyncio.wrap_future(self._loop_thread.run(self._check()))
        return [] if arrives else [LISTEN_UNAVAILABLE]

    @property
    def _both(self) -> tuple[PgNotifier, PgListener]:
        """Created on the loop thread, where alone they are used."""
        if self._ends is None:
            notifier = PgNotifier(self._address)
            listener = PgListener(
                self._address, notifier, wanted=self._wanted_now, deliver=self._deliver
            )
            self._ends = notifier, listener
        return self._ends

    def _wanted_now(self) -> frozenset[Topic]:
        return frozenset() if self._is_closed else self._wanted()

    async def _check(self) -> bool:
        session = await DedicatedConnection.open(self._address)
        try:
            return await notify_roundtrip_works(session.connection, self._address, self._both[0])
        finally:
            await session.close()

    async def _close(self) -> None:
        notifier, listener = self._both
        listener.close()
        await notifier.close()


class DisabledBridge:
    """The bridge for `?notify=false`: commits of other processes are found by polling."""

    def publish(self, notification: Notification) -> None:
        """Send nothing."""

    def update_topics(self) -> None:
        """Receive nothing."""

    def close(self) -> None:
        """Release nothing."""

    async def health_warnings(self) -> list[str]:
        """Return no warning."""
        return []

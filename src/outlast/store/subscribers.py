"""Subscribers of this process, notified of its own commits and of those of others."""

import logging
from collections.abc import Callable, Collection
from typing import Protocol

from outlast.store.contract.notifications import Notification, Topic

log = logging.getLogger("outlast.store")

Wake = Callable[[Notification], None]


class NotificationBridge(Protocol):
    """Sends notifications to the other processes of a store and receives theirs."""

    def publish(self, notification: Notification) -> None:
        """Notify the other processes of a commit; never blocks and never raises."""
        ...

    def update_topics(self) -> None:
        """Listen for the topics that are wanted now."""
        ...

    def close(self) -> None:
        """Stop sending and listening."""
        ...


class Subscribers:
    """Calls each subscriber once per commit that concerns it, in this process or another."""

    def __init__(self) -> None:
        self._wakes: dict[object, tuple[Wake, frozenset[Topic]]] = {}
        self._bridge: NotificationBridge | None = None

    def add(self, wake: Wake, topics: Collection[Topic]) -> Callable[[], None]:
        """Call `wake` for these topics from now on; return the function that unsubscribes."""
        mark = object()
        self._wakes[mark] = (wake, frozenset(topics))
        self._update_topics()

        def leave() -> None:
            if self._wakes.pop(mark, None) is not None:
                self._update_topics()

        return leave

    def publish(self, notification: Notification) -> None:
        """Notify the subscribers of this process and the other processes of a commit."""
        self.deliver(notification)
        if self._bridge is not None:
            self._bridge.publish(notification)

    def connect(self, bridge: NotificationBridge) -> None:
        """Exchange notifications with the other processes that have the store open."""
        self._bridge = bridge
        self._update_topics()

    def disconnect(self) -> None:
        """Close the bridge; no-op without one."""
        bridge, self._bridge = self._bridge, None
        if bridge is not None:
            bridge.close()

    @property
    def wanted(self) -> frozenset[Topic]:
        """The topics of all subscribers of this process."""
        return frozenset[Topic]().union(*(topics for _, topics in tuple(self._wakes.values())))

    def deliver(self, notification: Notification) -> None:
        """Call the subscribers of this process that it concerns; errors are logged."""
        about = notification.topics
        for wake, topics in tuple(self._wakes.values()):
            if about & topics:
                try:
                    wake(notification)
                except Exception:
                    log.exception("subscriber failed; polling continues")

    def _update_topics(self) -> None:
        if self._bridge is not None:
            self._bridge.update_topics()

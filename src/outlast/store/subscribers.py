"""Who listens in this process, to its own commits and to those of others."""

import logging
from collections.abc import Callable, Collection
from typing import Protocol

from outlast.store.contract.notifications import Notification, Topic

log = logging.getLogger("outlast.store")

Wake = Callable[[Notification], None]


class NotificationBridge(Protocol):
    """What reaches the other processes of a store, and is reached by them."""

    def publish(self, hint: Notification) -> None:
        """Something was committed here. Never waits and never raises."""
        ...

    def update_topics(self) -> None:
        """Somebody came or left: be reachable for what is wanted now."""
        ...

    def close(self) -> None: ...


class Subscribers:
    """Wakes whom a commit concerns, once. Other processes are reached while it is connected."""

    def __init__(self) -> None:
        self._wakes: dict[object, tuple[Wake, frozenset[Topic]]] = {}
        self._exchange: NotificationBridge | None = None

    def add(self, wake: Wake, topics: Collection[Topic]) -> Callable[[], None]:
        """Wake it from now on; the answer ends that."""
        mark = object()
        self._wakes[mark] = (wake, frozenset(topics))
        self._tune()

        def leave() -> None:
            if self._wakes.pop(mark, None) is not None:
                self._tune()

        return leave

    def publish(self, hint: Notification) -> None:
        """Something was committed here."""
        self.deliver(hint)
        if self._exchange is not None:
            self._exchange.publish(hint)

    def connect(self, exchange: NotificationBridge) -> None:
        """The store is open: reach, and be reached by, the others who have it open."""
        self._exchange = exchange
        self._tune()

    def disconnect(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()

    @property
    def wanted(self) -> frozenset[Topic]:
        """What anybody here wants to hear of."""
        return frozenset[Topic]().union(*(topics for _, topics in tuple(self._wakes.values())))

    def deliver(self, hint: Notification) -> None:
        """Tell everybody in this process whom it concerns."""
        about = hint.topics
        for wake, topics in tuple(self._wakes.values()):
            if about & topics:
                try:
                    wake(hint)
                except Exception:
                    log.exception("a listener failed; hints are only hints")

    def _tune(self) -> None:
        if self._exchange is not None:
            self._exchange.update_topics()

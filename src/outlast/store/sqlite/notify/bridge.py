"""Notifications to and from the other processes of a file; none without Unix sockets."""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from outlast.store.contract.notifications import Notification, Topic
from outlast.store.sqlite.notify.listener import SocketListener
from outlast.store.sqlite.notify.notifier import SocketNotifier
from outlast.store.sqlite.notify.socket_dir import socket_dir_for, to_bits

log = logging.getLogger("outlast.store")

_NO_TOPICS: Final[frozenset[Topic]] = frozenset()


class SocketBridge:
    """Notifies other processes of commits, and listens while this process has subscribers."""

    def __init__(
        self,
        database: Path,
        *,
        wanted: Callable[[], frozenset[Topic]],
        deliver: Callable[[Notification], None],
        monotonic: Callable[[], int],
    ) -> None:
        """Prepare to send.

        `wanted` returns the topics of this process's subscribers. `deliver` receives the
        notifications of other processes. `monotonic` is a clock in microseconds.
        """
        self._wanted = wanted
        self._deliver = deliver
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._topics = _NO_TOPICS
        self._is_closed = False
        self._listener: SocketListener | None = None
        self._notifier: SocketNotifier | None = None
        try:
            self._folder = socket_dir_for(database)
            self._notifier = SocketNotifier(self._folder, monotonic)
        except (OSError, AttributeError) as error:  # a system without Unix sockets
            log.debug("notifications unavailable path=%s: %s", database, error)

    def publish(self, notification: Notification) -> None:
        """Notify the other processes; never blocks and never raises."""
        bits = to_bits(notification.topics)
        if bits and self._notifier is not None:
            listener = self._listener
            self._notifier.send(bits, besides=listener.name if listener else None)

    def update_topics(self) -> None:
        """Listen for the topics that are wanted now; stop listening if there are none."""
        if os.getpid() != self._pid:  # a forked child does not own the socket
            return
        with self._turn:
            leaving = self._set_topics(_NO_TOPICS if self._is_closed else self._wanted())
        if leaving is not None:  # outside the lock: the listener's thread may wait for it
            leaving.close()

    def close(self) -> None:
        """Stop listening and sending."""
        self._is_closed = True
        self.update_topics()
        if self._notifier is not None:
            self._notifier.close()

    def _set_topics(self, topics: frozenset[Topic]) -> SocketListener | None:
        """Open, change or detach the listener; return one that is to be closed."""
        before, self._topics = self._topics, topics
        if not topics:
            leaving, self._listener = self._listener, None
            return leaving
        if self._listener is None:
            self._listener = self._open_listener(topics)
        elif topics != before:
            self._listener.set_topics(topics)
        return None

    def _open_listener(self, topics: frozenset[Topic]) -> SocketListener | None:
        if self._notifier is None:
            return None
        try:
            return SocketListener.open(self._folder, topics, self._deliver)
        except OSError as error:
            log.debug("listener unavailable folder=%s: %s", self._folder, error)
            return None

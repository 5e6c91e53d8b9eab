"""Both ways of the wake-ups between processes; where the system has none, there are none."""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from outlast.store.contract.notifications import Notification, Topic
from outlast.store.sqlite.notify.listener import SocketListener
from outlast.store.sqlite.notify.notifier import SocketNotifier
from outlast.store.sqlite.notify.socket_dir import socket_dir_for, to_bits

log = logging.getLogger("outlast.store")

NOTHING: frozenset[Topic] = frozenset()


class SocketBridge:
    """Tells other processes of commits, and hears of theirs once somebody here listens."""

    def __init__(
        self,
        database: Path,
        *,
        wanted: Callable[[], frozenset[Topic]],
        heard: Callable[[Notification], None],
        monotonic: Callable[[], int],
    ) -> None:
        self._wanted = wanted
        self._heard = heard
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._topics = NOTHING
        self._is_closed = False
        self._ear: SocketListener | None = None
        self._voice: SocketNotifier | None = None
        try:
            self._place = socket_dir_for(database)
            self._voice = SocketNotifier(self._place, monotonic)
        except (OSError, AttributeError) as error:  # a system without Unix sockets
            log.debug("no hints between processes path=%s: %s", database, error)

    def publish(self, hint: Notification) -> None:
        """Never waits and never raises."""
        bits = to_bits(hint.topics)
        if bits and self._voice is not None:
            ear = self._ear
            self._voice.tell(bits, but=ear.who if ear else None)

    def update_topics(self) -> None:
        """Be reachable for what is wanted; if that is nothing, be out of reach."""
        if os.getpid() != self._pid:  # inherited through a fork: not ours to change
            return
        with self._turn:
            leaving = self._tune(NOTHING if self._is_closed else self._wanted())
        if leaving is not None:  # outside the lock, for its thread may be waiting for that
            leaving.close()

    def close(self) -> None:
        self._is_closed = True
        self.update_topics()
        if self._voice is not None:
            self._voice.close()

    def _tune(self, topics: frozenset[Topic]) -> SocketListener | None:
        """The ear that is to be closed, if it is."""
        before, self._topics = self._topics, topics
        if not topics:
            leaving, self._ear = self._ear, None
            return leaving
        if self._ear is None:
            self._ear = self._open(topics)
        elif topics != before:
            self._ear.set_topics(topics)
        return None

    def _open(self, topics: frozenset[Topic]) -> SocketListener | None:
        if self._voice is None:
            return None
        try:
            return SocketListener.open(self._place, topics, self._heard)
        except OSError as error:
            log.debug("no hints from other processes place=%s: %s", self._place, error)
            return None

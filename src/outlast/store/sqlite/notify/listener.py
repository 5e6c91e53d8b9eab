"""Hearing what other processes commit: one socket, and a thread that sleeps in the kernel."""

import os
import selectors
import socket
import threading
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from outlast.store.contract.notifications import Notification, Topic
from outlast.store.fork_safety import close_in_children
from outlast.store.sqlite.notify.socket_dir import make, to_bits, to_hint

ATTEMPTS = 5
AT_ONCE = 1000
"""Datagrams that become one hint at most: a flood is answered, not waited out."""


class SocketListener:
    """A socket in the meeting place. `heard` is called on its thread, once for all that came."""

    def __init__(
        self, place: Path, topics: Collection[Topic], heard: Callable[[Notification], None]
    ) -> None:
        self._place = place
        self._heard = heard
        self._pid = os.getpid()
        self.who = f"{self._pid}-{uuid.uuid4().hex[:8]}"
        self._path = place / f"{to_bits(topics)}-{self.who}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="outlast-hints", daemon=True)
        try:
            self._bind()
        except BaseException:
            self.drop()
            raise

    @classmethod
    def open(
        cls, place: Path, topics: Collection[Topic], heard: Callable[[Notification], None]
    ) -> "SocketListener":
        """Listen from now on; OSError if that cannot be done here."""
        ear = close_in_children(lambda: cls(place, topics, heard))
        ear.start()
        return ear

    def start(self) -> None:
        self._thread.start()

    def set_topics(self, topics: Collection[Topic]) -> None:
        """Listen for these instead. A socket is found under its new name at once."""
        path = self._place / f"{to_bits(topics)}-{self.who}"
        with suppress(OSError):  # somebody took it away: nothing more is heard, and polling goes on
            self._path.rename(path)
        self._path = path

    def close(self) -> None:
        """Stop the thread and take the socket out of the folder."""
        if os.getpid() == self._pid:
            self._stop.send(b"\0")
            with suppress(OSError):
                self._path.unlink()
                self._place.rmdir()  # only if nobody else is there
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def drop(self) -> None:
        for each in (self._socket, self._stop, self._stopped):
            each.close()

    def _bind(self) -> None:
        self._socket.setblocking(False)
        for attempt in range(1, ATTEMPTS + 1):
            make(self._place)
            try:
                self._socket.bind(str(self._path))
            except FileNotFoundError:  # whoever left last took the folder away just now
                if attempt == ATTEMPTS:
                    raise
            else:
                return

    def _run(self) -> None:
        with selectors.DefaultSelector() as both:
            both.register(self._socket, selectors.EVENT_READ)
            both.register(self._stopped, selectors.EVENT_READ)
            while self._stopped not in [key.fileobj for key, _ in both.select()]:
                bits = self._receive()
                if bits:
                    self._heard(to_hint(bits))
        self.drop()

    def _receive(self) -> int:
        """All that has come, as one."""
        bits = 0
        with suppress(OSError):  # there is no more
            for _ in range(AT_ONCE):
                bits |= int.from_bytes(self._socket.recv(1))  # of an empty one 0
        return bits

"""Receives the notifications of other processes: one socket, and a thread that waits on it."""

import os
import selectors
import socket
import threading
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from outlast.store.contract.notifications import Notification, Topic
from outlast.store.fork_safety import close_in_children
from outlast.store.sqlite.notify.socket_dir import create_socket_dir, from_bits, to_bits

BIND_ATTEMPTS: Final = 5
MAX_DATAGRAMS_PER_NOTIFICATION: Final = 1000
"""Bound of the datagrams merged into one notification, so that a flood cannot delay it."""


class SocketListener:
    """A socket in the socket folder; its thread calls `deliver` once for all that arrived."""

    def __init__(
        self, folder: Path, topics: Collection[Topic], deliver: Callable[[Notification], None]
    ) -> None:
        """Bind a socket whose name states the topics; raises OSError if that fails."""
        self._folder = folder
        self._deliver = deliver
        self._pid = os.getpid()
        self.name = f"{self._pid}-{uuid.uuid4().hex[:8]}"
        self._path = folder / f"{to_bits(topics)}-{self.name}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="outlast-listener", daemon=True)
        try:
            self._bind()
        except BaseException:
            self.drop()
            raise

    @classmethod
    def open(
        cls, folder: Path, topics: Collection[Topic], deliver: Callable[[Notification], None]
    ) -> "SocketListener":
        """Return a started listener that forked children close; raises OSError."""
        listener = close_in_children(lambda: cls(folder, topics, deliver))
        listener.start()
        return listener

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def set_topics(self, topics: Collection[Topic]) -> None:
        """Change the topics by renaming the socket, which senders see at once."""
        path = self._folder / f"{to_bits(topics)}-{self.name}"
        with suppress(OSError):  # the socket was deleted: notifications end, polling continues
            self._path.rename(path)
        self._path = path

    def close(self) -> None:
        """Stop the thread and delete the socket; no-op in a forked child."""
        if os.getpid() == self._pid:
            self._stop.send(b"\0")
            with suppress(OSError):
                self._path.unlink()
                self._folder.rmdir()  # fails while other sockets are in it
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def drop(self) -> None:
        """Close the sockets of this process."""
        for each in (self._socket, self._stop, self._stopped):
            each.close()

    def _bind(self) -> None:
        self._socket.setblocking(False)
        for attempt in range(1, BIND_ATTEMPTS + 1):
            create_socket_dir(self._folder)
            try:
                self._socket.bind(str(self._path))
            except FileNotFoundError:  # another process deleted the empty folder meanwhile
                if attempt == BIND_ATTEMPTS:
                    raise
            else:
                return

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            while self._stopped not in [key.fileobj for key, _ in selector.select()]:
                bits = self._receive()
                if bits:
                    self._deliver(from_bits(bits))
        self.drop()

    def _receive(self) -> int:
        """Return the topics of all datagrams that arrived."""
        bits = 0
        with suppress(OSError):  # no datagram is left
            for _ in range(MAX_DATAGRAMS_PER_NOTIFICATION):
                bits |= int.from_bytes(self._socket.recv(1))  # 0 for an empty datagram
        return bits

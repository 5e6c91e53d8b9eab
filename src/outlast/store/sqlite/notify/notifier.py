"""Sends notifications to other processes: never blocks, never raises, drops dead sockets."""

import logging
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from outlast.store.sqlite.notify.socket_dir import SOCKET_NAME, require_private

log = logging.getLogger("outlast.store")

MAX_PEERS: Final = 1000
"""Sockets of one file that are notified; the processes beyond them poll."""

TIMESTAMP_GRANULARITY_US: Final = 100_000
"""Microseconds until a folder's time stamp is reliable: file systems stamp in coarse steps, and a
second change within a step leaves no trace."""


@dataclass(frozen=True, slots=True)
class PeerSocket:
    """A listener's socket in the folder: its path, the bits of its topics, its name."""

    path: str
    bits: int
    name: str


class SocketNotifier:
    """Sends one byte to every listener of a topic; thread-safe."""

    def __init__(self, folder: Path, monotonic: Callable[[], int]) -> None:
        """Send to the sockets in `folder`; `monotonic` is a clock in microseconds."""
        self._folder = folder
        self._folder_text = str(folder)
        self._monotonic = monotonic
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._turn = threading.Lock()
        self._folder_stamp: tuple[int, int] | None = None
        self._stamp_since = 0
        self._is_stamp_reliable = False
        self._peers: list[PeerSocket] = []

    def send(self, bits: int, *, besides: str | None) -> None:
        """Notify all listeners of these topics except the one named `besides`."""
        notified = {besides}
        with self._turn, suppress(OSError):  # no folder means no listeners
            if not self._send_to_all(self._current_peers(), bits, notified):
                self._folder_stamp = None  # a listener was renamed: read the folder again
                self._send_to_all(self._current_peers(), bits, notified)

    def close(self) -> None:
        """Close the sending socket."""
        self._socket.close()

    def _send_to_all(
        self, peers: Iterable[PeerSocket], bits: int, notified: set[str | None]
    ) -> bool:
        """Return False if one of the sockets does not exist any more."""
        all_exist = True
        for peer in peers:
            if peer.bits & bits and peer.name not in notified:
                exists = self._send_to(peer, bits & peer.bits)
                all_exist = all_exist and exists
                notified.update([peer.name] if exists else [])
        return all_exist

    def _send_to(self, peer: PeerSocket, bits: int) -> bool:
        try:
            self._socket.sendto(bytes([bits]), peer.path)
        except FileNotFoundError:
            return False
        except ConnectionRefusedError:
            self._delete(peer)
        except OSError as error:  # its buffer is full, or it belongs to another application
            log.debug("notification not sent path=%s: %s", peer.path, error)
        return True

    def _delete(self, peer: PeerSocket) -> None:
        """Delete the socket of a process that died."""
        log.debug("dead listener removed path=%s", peer.path)
        with suppress(OSError):
            Path(peer.path).unlink()
            self._folder.rmdir()  # fails while other sockets are in it

    def _current_peers(self) -> list[PeerSocket]:
        """Return the sockets of the folder, which is read again only after it changed."""
        stamp = os.stat(self._folder_text)  # noqa: PTH116 - cheaper, and this runs at every commit
        now = self._monotonic()
        if self._folder_stamp != (stamp.st_ino, stamp.st_mtime_ns):
            self._folder_stamp = (stamp.st_ino, stamp.st_mtime_ns)
            self._stamp_since = now
            self._is_stamp_reliable = False
        if not self._is_stamp_reliable:
            self._peers = self._read_folder()
            self._is_stamp_reliable = now - self._stamp_since > TIMESTAMP_GRANULARITY_US
        return self._peers

    def _read_folder(self) -> list[PeerSocket]:
        require_private(self._folder.parent)
        with os.scandir(self._folder) as entries:
            found = (
                (entry, SOCKET_NAME.fullmatch(entry.name)) for entry in islice(entries, MAX_PEERS)
            )
            return [
                PeerSocket(entry.path, int(matched[1]), matched[2])
                for entry, matched in found
                if matched and _is_socket(entry)
            ]


def _is_socket(entry: "os.DirEntry[str]") -> bool:
    """Return whether it is a socket; a link to one is not, because it could lead anywhere."""
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False

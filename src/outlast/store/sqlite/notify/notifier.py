"""Telling other processes of a commit: never waiting, never failing, forgetting the dead."""

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

from outlast.store.sqlite.notify.socket_dir import NAME, require_ours

log = logging.getLogger("outlast.store")

MOST = 1000
"""Listeners of one file at most; beyond that they poll."""

SETTLED = 100_000
"""Microseconds until a folder's time stamp can be trusted: file systems stamp in steps, and what
comes within a step of the last change leaves no trace."""


@dataclass(frozen=True, slots=True)
class PeerSocket:
    """One socket in the folder."""

    path: str
    bits: int
    who: str


class SocketNotifier:
    """Sends a byte to every listener whom it concerns. Any thread may use it."""

    def __init__(self, place: Path, monotonic: Callable[[], int]) -> None:
        self._place = place
        self._folder = str(place)
        self._monotonic = monotonic
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._turn = threading.Lock()
        self._seen: tuple[int, int] | None = None
        self._since = 0
        self._is_settled = False
        self._listeners: list[PeerSocket] = []

    def tell(self, bits: int, *, but: str | None) -> None:
        """Tell all but that one, who knows already."""
        told = {but}
        with self._turn, suppress(OSError):  # no folder: nobody listens
            if not self._tell(self._found(), bits, told):
                self._seen = None
                self._tell(self._found(), bits, told)  # somebody has got another name meanwhile

    def close(self) -> None:
        self._socket.close()

    def _tell(self, listeners: Iterable[PeerSocket], bits: int, told: set[str | None]) -> bool:
        """False if one of them was not there any more."""
        all_there = True
        for each in listeners:
            if each.bits & bits and each.who not in told:
                is_there = self._send(each, bits & each.bits)
                all_there = all_there and is_there
                told.update([each.who] if is_there else [])
        return all_there

    def _send(self, listener: PeerSocket, bits: int) -> bool:
        try:
            self._socket.sendto(bytes([bits]), listener.path)
        except FileNotFoundError:
            return False
        except ConnectionRefusedError:
            self._forget(listener)
        except OSError as error:  # it has enough to read already, or is none of ours
            log.debug("not told path=%s: %s", listener.path, error)
        return True

    def _forget(self, listener: PeerSocket) -> None:
        """Its process died and could not take its socket away."""
        log.debug("forgotten path=%s", listener.path)
        with suppress(OSError):
            Path(listener.path).unlink()
            self._place.rmdir()  # only if it was the last

    def _found(self) -> list[PeerSocket]:
        """Who is in the folder, which is read again only when it has changed."""
        stamp = os.stat(self._folder)  # noqa: PTH116 - once per commit, so it must be cheap
        now = self._monotonic()
        if self._seen != (stamp.st_ino, stamp.st_mtime_ns):
            self._seen = (stamp.st_ino, stamp.st_mtime_ns)
            self._since = now
            self._is_settled = False
        if not self._is_settled:
            self._listeners = self._read()
            self._is_settled = now - self._since > SETTLED
        return self._listeners

    def _read(self) -> list[PeerSocket]:
        require_ours(self._place.parent)
        with os.scandir(self._place) as entries:
            found = ((entry, NAME.fullmatch(entry.name)) for entry in islice(entries, MOST))
            return [
                PeerSocket(entry.path, int(named[1]), named[2])
                for entry, named in found
                if named and _is_socket(entry)
            ]


def _is_socket(entry: "os.DirEntry[str]") -> bool:
    """A link to a socket is none: it could lead anywhere."""
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False

"""The sockets of a notification folder, and a subscriber that collects notifications."""

import asyncio
import queue
import socket
from pathlib import Path

from outlast.store.contract.notifications import Notification, Topic
from store.sqlite_helpers import PATIENCE

ALL = [str(topic) for topic in Topic]


def sockets(place: Path) -> list[str]:
    return sorted(each.name for each in place.iterdir()) if place.exists() else []


def is_there(place: Path) -> bool:
    return place.exists()


def squat(place: Path, name: str, kind: int = socket.SOCK_DGRAM) -> socket.socket:
    """Somebody's socket under that name."""
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
    found = socket.socket(socket.AF_UNIX, kind)
    found.bind(str(place / name))
    return found


class ReceivedNotifications:
    """Collects hints, on whichever thread they come."""

    def __init__(self) -> None:
        self._hints: queue.SimpleQueue[Notification] = queue.SimpleQueue()
        self.hear = self._hints.put

    async def next(self) -> Notification:
        return await asyncio.to_thread(self._hints.get, timeout=PATIENCE)

    @property
    def rest(self) -> int:
        return self._hints.qsize()

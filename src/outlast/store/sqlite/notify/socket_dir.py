"""The folder in which the processes that share a database file find each other's sockets.

A listener's socket is called `<topics>-<pid>-<random>`, so that a sender sees from the names which
listeners a notification concerns.
"""

import os
import re
import stat
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Final

from outlast.store.contract.notifications import Notification, Topic

TOPIC_BITS: Final = {Topic.WORK: 1, Topic.ENDED: 2, Topic.CANCELLED: 4, Topic.SCHEDULES: 8}
SOCKET_NAME: Final = re.compile(r"([0-9]{1,2})-([0-9]{1,10}-[0-9a-f]{8})", re.ASCII)
_UNKNOWN_QUEUE: Final = frozenset({""})
"""A byte does not say which queue has work."""


def socket_dir_for(database: Path) -> Path:
    """Return the socket folder of a file: one per inode, whichever path leads to it."""
    known = database.stat()
    return _runtime_folder() / f"{known.st_dev:x}-{known.st_ino:x}"


def create_socket_dir(folder: Path) -> None:
    """Create the folder for this user alone.

    Raises PermissionError if its parent belongs to another user.
    """
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    require_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def require_private(folder: Path) -> None:
    """Raise PermissionError unless the folder belongs to this user alone.

    In a shared temporary folder another user may have created one of that name first.
    """
    found = folder.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_own or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone; remove it")


def to_bits(topics: Collection[Topic]) -> int:
    """Return the byte that stands for these topics."""
    return sum(TOPIC_BITS[topic] for topic in topics)


def from_bits(bits: int) -> Notification:
    """Return the notification that a byte stands for."""
    return Notification(
        queues=_UNKNOWN_QUEUE if bits & TOPIC_BITS[Topic.WORK] else frozenset(),
        ended=bool(bits & TOPIC_BITS[Topic.ENDED]),
        cancelled=bool(bits & TOPIC_BITS[Topic.CANCELLED]),
        schedules=bool(bits & TOPIC_BITS[Topic.SCHEDULES]),
    )


def _runtime_folder() -> Path:
    configured = os.environ.get("XDG_RUNTIME_DIR", "")
    is_usable = Path(configured).is_absolute() and os.access(configured, os.W_OK | os.X_OK)
    return Path(configured if is_usable else tempfile.gettempdir()) / f"outlast-{os.geteuid()}"

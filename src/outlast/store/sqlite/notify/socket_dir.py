"""Where the processes that share a database file find each other: a folder of sockets.

A listener's socket is called `<topics>-<pid>-<random>`, so that whoever commits something can see
from the names whom it concerns.
"""

import os
import re
import stat
import tempfile
from collections.abc import Collection
from pathlib import Path

from outlast.store.contract.notifications import Notification, Topic

BITS = {Topic.WORK: 1, Topic.ENDED: 2, Topic.CANCELLED: 4}
NAME = re.compile(r"([0-7])-([0-9]{1,10}-[0-9a-f]{8})", re.ASCII)
SOME_QUEUE = frozenset({""})
"""A byte does not say which queue has work."""


def socket_dir_for(database: Path) -> Path:
    """The folder for this file, whichever path leads to it; a copy has another one."""
    known = database.stat()
    return _runtime_folder() / f"{known.st_dev:x}-{known.st_ino:x}"


def make(place: Path) -> None:
    """Create it for this user alone; PermissionError if its parent is somebody else's."""
    place.parent.mkdir(mode=0o700, exist_ok=True)
    require_ours(place.parent)
    place.mkdir(mode=0o700, exist_ok=True)


def require_ours(folder: Path) -> None:
    """In a folder for all, somebody else may have made one of that name first."""
    found = folder.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_ours or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone; remove it")


def to_bits(topics: Collection[Topic]) -> int:
    return sum(BITS[topic] for topic in topics)


def to_hint(bits: int) -> Notification:
    return Notification(
        queues=SOME_QUEUE if bits & BITS[Topic.WORK] else frozenset(),
        ended=bool(bits & BITS[Topic.ENDED]),
        cancelled=bool(bits & BITS[Topic.CANCELLED]),
    )


def _runtime_folder() -> Path:
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = Path(given).is_absolute() and os.access(given, os.W_OK | os.X_OK)
    return Path(given if usable else tempfile.gettempdir()) / f"outlast-{os.geteuid()}"

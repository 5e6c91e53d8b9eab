"""One server shared by all processes of a test session; the first process starts it."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outlast.testing.servers import process_tree

ServerFacts = dict[str, Any]


@contextmanager
def shared(meeting: Path, name: str, start: Callable[[Path], ServerFacts]) -> Iterator[ServerFacts]:
    """Yield the description of the server that all processes naming the same folder share.

    The first process calls `start` with the lock that all users hold; a watcher removes the server
    when the lock is free. The description names the server's `folders`; if they are gone, the next
    process starts another server.
    """
    users, note = meeting / f"{name}.lock", meeting / f"{name}.json"
    with _alone(meeting / f"{name}.starting"):
        held = process_tree.hold(users)  # waits while the watcher of an earlier one clears away
        told = json.loads(note.read_text()) if note.exists() else None
        if told is None or not all(Path(folder).exists() for folder in told["folders"]):
            told = start(users)
            note.write_text(json.dumps(told))
    try:
        yield told
    finally:
        os.close(held)


@contextmanager
def own(folder: Path, name: str, start: Callable[[Path], ServerFacts]) -> Iterator[ServerFacts]:
    """Yield the description of a server for this process alone."""
    lock = folder / f"{name}.lock"
    held = process_tree.hold(lock)
    try:
        yield start(lock)
    finally:
        os.close(held)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

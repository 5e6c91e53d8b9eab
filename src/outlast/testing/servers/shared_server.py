"""One server for all the processes of a test session, started by whoever is first."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outlast.testing.servers import process_tree

Told = dict[str, Any]


@contextmanager
def shared(meeting: Path, name: str, start: Callable[[Path], Told]) -> Iterator[Told]:
    """What `start` told of the server that it started for everybody who names the same folder.

    It is given the lock that everybody holds: whoever watches it clears away when it is free. The
    answer holds the server's `folders`; when they are gone, the next one starts another.
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
def own(folder: Path, name: str, start: Callable[[Path], Told]) -> Iterator[Told]:
    """The same, for nobody else."""
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

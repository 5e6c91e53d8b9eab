"""A runtime folder of each test's own, another process, and a second store on the same file."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from outlast.store.sqlite.notify.socket_dir import socket_dir_for
from outlast.store.sqlite.store import SqliteStore
from store.sqlite_helpers import Peer, opened


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of this test alone; a test's own folder has too long a name for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="hf-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def place(path: Path, store: SqliteStore) -> Path:
    return socket_dir_for(path)


@pytest.fixture
def other() -> Iterator[Peer]:
    """A process that is this test's alone, to be killed if it likes."""
    with Peer() as process:
        yield process


@pytest.fixture
async def rival(path: Path, store: SqliteStore) -> AsyncIterator[SqliteStore]:
    """A second store on the same file, in this process."""
    async with opened(path) as second:
        yield second

"""One SQLite file for every test: its store, an app over it, and a look at it from outside."""

import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from outlast import Outlast
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock

from .crashing import TRANSITIONS, Wreck, wrecks
from .database_file import Sql


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(path: Path, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    """The store, open, by a clock that moves only when told."""
    sqlite = SqliteStore(path, clock=clock)
    await sqlite.open()
    yield sqlite
    await sqlite.close()


@pytest.fixture
async def app(store: SqliteStore) -> AsyncIterator[Outlast]:
    """An app over that store; its worker looks around every few milliseconds of real time."""
    async with Outlast(store, poll="5ms", tick="5ms") as outlast:
        yield outlast


@pytest.fixture
def sql(path: Path) -> Sql:
    return Sql(path)


@pytest.fixture(scope="session")
def quick_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where hundreds of killed processes leave their files.

    A killed process loses nothing that the kernel has, so memory serves as well as a disk.
    """
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own in it
    if not os.access(memory, os.W_OK):
        yield tmp_path_factory.mktemp("wrecks")
        return
    with TemporaryDirectory(prefix="outlast-wrecks-", dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def quick(quick_folder: Path) -> Iterator[Path]:
    """A folder of the test's own there, for tests that write much and lose no power."""
    with TemporaryDirectory(dir=quick_folder) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def wreckage(quick_folder: Path) -> dict[str, list[Wreck]]:
    """Every transition, killed before its statements, for real."""
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda name: wrecks(name, quick_folder), TRANSITIONS)
        return dict(zip(TRANSITIONS, found, strict=True))

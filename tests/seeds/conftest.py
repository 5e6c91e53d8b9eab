"""One SQLite file for every test: its store, an app over it, and a look at it from outside."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import FakeClock

from .kit import Sql

pytest.register_assert_rewrite("holdfast.testing.conformance", "holdfast.testing.invariants")


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
async def app(store: SqliteStore) -> AsyncIterator[Holdfast]:
    """An app over that store; its worker looks around every few milliseconds of real time."""
    async with Holdfast(store, poll="5ms", tick="5ms") as holdfast:
        yield holdfast


@pytest.fixture
def sql(path: Path) -> Sql:
    return Sql(path)

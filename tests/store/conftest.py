"""One SQLite file for every test, its store by a clock that stands still, and a look from outside."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pytest

from holdfast.core.ids import Ids
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import FakeClock

from .kit import Peer, Trace, opened, raw

pytest.register_assert_rewrite("holdfast.testing.conformance")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids(clock: FakeClock) -> Ids:
    return Ids(clock.now, Random(1).getrandbits)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def trace() -> Trace:
    return Trace()


@pytest.fixture
async def store(
    path: Path, clock: FakeClock, ids: Ids, trace: Trace
) -> AsyncIterator[SqliteStore]:
    async with opened(path, clock=clock, ids=ids, probe=trace) as sqlite:
        yield sqlite


@pytest.fixture
def db(path: Path, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """The store's file, seen from outside."""
    with raw(path) as connection:
        yield connection


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """Another process; whoever uses it leaves nothing open or locked."""
    with Peer() as process:
        yield process


@pytest.fixture(scope="session")
def second_peer() -> Iterator[Peer]:
    with Peer() as process:
        yield process

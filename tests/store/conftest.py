"""One SQLite file for every test: its store, by a clock that stands still, and a look at it."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from outlast.core.ids import Ids
from outlast.core.run import Claim
from outlast.store.sqlite.handler_transaction import SqliteTransaction
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock

from .sqlite_helpers import PATIENCE, DbOf, Peer, Trace, Worlds, opened, raw


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
async def store(path: Path, clock: FakeClock, ids: Ids, trace: Trace) -> AsyncIterator[SqliteStore]:
    async with opened(path, clock=clock, ids=ids, probe=trace) as sqlite:
        yield sqlite


@pytest.fixture
def db(path: Path, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """The store's file, seen from outside."""
    with raw(path) as connection:
        yield connection


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("worlds"))


@pytest.fixture
def db_of(worlds: Worlds) -> Iterator[DbOf]:
    """The file of a world made before, seen from outside."""
    with ExitStack() as closing:
        yield lambda make: closing.enter_context(raw(worlds.copy(make)))


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """Another process; whoever uses it leaves nothing open or locked."""
    with Peer() as process:
        yield process


@pytest.fixture(scope="session")
def second_peer() -> Iterator[Peer]:
    with Peer() as process:
        yield process


@pytest.fixture
async def claim(store: SqliteStore, path: Path) -> Claim:
    """A run under way, and a table for its effects."""
    from outlast.testing.conformance.factories import started  # noqa: PLC0415 - once it is rewritten

    with raw(path) as own:
        own.execute("CREATE TABLE effects (what TEXT)")
    return await started(store)


@pytest.fixture
async def transaction(store: SqliteStore, claim: Claim) -> AsyncIterator[SqliteTransaction]:
    """Open, with time enough."""
    begun = await store.begin(within=timedelta(seconds=PATIENCE))
    yield begun
    await begun.rollback()

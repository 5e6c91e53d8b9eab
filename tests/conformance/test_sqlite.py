"""The SQLite store keeps the contract."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.core.ids import Ids
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import FakeClock
from holdfast.testing.conformance import *  # noqa: F403 - the suite


@pytest.fixture
async def store(clock: FakeClock, ids: Ids, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    sqlite = SqliteStore(tmp_path / "jobs.db", clock=clock, ids=ids)
    await sqlite.open()
    yield sqlite
    await sqlite.close()

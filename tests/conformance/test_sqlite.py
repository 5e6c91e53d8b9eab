"""The SQLite store keeps the contract, also when the file outlives processes and is shared."""

import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.core.ids import Ids
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import *  # noqa: F403 - the suite
from outlast.testing.conformance.concurrency import *  # noqa: F403 - capability SHARED
from outlast.testing.conformance.concurrency_documents import *  # noqa: F403 - same
from outlast.testing.conformance.concurrency_queues import *  # noqa: F403 - the same, of queues
from outlast.testing.conformance.concurrency_schedules import *  # noqa: F403 - same
from outlast.testing.conformance.concurrency_windows import *  # noqa: F403 - same
from outlast.testing.conformance.corruption_detection import *  # noqa: F403 - what verify finds
from outlast.testing.conformance.corruption_recovery import *  # noqa: F403 - what recovery repairs
from outlast.testing.conformance.corruption_recovery_records import *  # noqa: F403 - the rest
from outlast.testing.conformance.durable import *  # noqa: F403 - capability DURABLE
from outlast.testing.conformance.histories.machine import history_machine
from support.corruption.sqlite import SqliteCorrupter


@pytest.fixture
async def store(clock: FakeClock, ids: Ids, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    sqlite = SqliteStore(tmp_path / "jobs.db", clock=clock, ids=ids)
    await sqlite.open()
    yield sqlite
    await sqlite.close()


@pytest.fixture
def corrupter(store: SqliteStore) -> SqliteCorrupter:
    return SqliteCorrupter(store.path)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'shared.db'}"


def make(clock: FakeClock, ids: Ids) -> SqliteStore:
    folder = tempfile.mkdtemp(prefix="outlast-")
    sqlite = SqliteStore(Path(folder) / "jobs.db", clock=clock, ids=ids)
    weakref.finalize(sqlite, shutil.rmtree, folder, ignore_errors=True)
    return sqlite


TestHistories = history_machine(make).TestCase
TestHistories.pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

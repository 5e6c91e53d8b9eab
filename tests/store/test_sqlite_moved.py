"""A file that is moved or replaced under an open store: nothing is acknowledged into nowhere."""

import shutil

import pytest

from outlast.core.decide import succeed
from outlast.errors import StoreCorrupt
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import HOUR, make_job, put, started

NAMES = ("jobs.db", "jobs.db-wal", "jobs.db-shm")


@pytest.fixture
async def store(tmp_path):
    store = SqliteStore(tmp_path / "jobs.db")
    await store.open()
    yield store
    await store.close()


def move(source, target):
    target.mkdir(exist_ok=True)
    for name in NAMES:
        if (source / name).exists():
            shutil.move(source / name, target / name)


async def test_a_file_that_was_removed_takes_nothing_and_goes_on_when_it_is_back(store, tmp_path):
    first = await put(store)
    move(tmp_path, tmp_path / "away")

    with pytest.raises(StoreCorrupt, match="was removed or replaced after it was opened"):
        await store.add([make_job()])
    move(tmp_path / "away", tmp_path)
    second = await put(store)

    assert [job.id for job in await store.peek("default", limit=9)] == [first, second]


async def test_a_file_put_in_its_place_is_not_taken_for_it(store, tmp_path):
    await put(store)
    move(tmp_path, tmp_path / "away")
    other = SqliteStore(tmp_path / "jobs.db")
    await other.open()

    with pytest.raises(StoreCorrupt):
        await store.add([make_job()])

    assert await other.peek("default", limit=9) == []
    await other.close()


@pytest.mark.parametrize("names", [["jobs.db-wal"], ["jobs.db-wal", "jobs.db-shm"]], ids=len)
async def test_no_write_is_acknowledged_into_a_log_that_was_removed(store, tmp_path, names):
    claim = await started(store)
    transaction = await store.begin(within=HOUR)
    for name in names:
        (tmp_path / name).unlink()

    with pytest.raises(StoreCorrupt, match="wal was removed"):
        await transaction.commit([succeed(claim.id, claim.token, None)])
    with pytest.raises(StoreCorrupt, match="wal was removed"):
        await store.add([make_job()])
    with pytest.raises(StoreCorrupt, match="wal was removed"):
        await store.begin(within=HOUR)

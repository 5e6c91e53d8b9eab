"""What holds on every connection, and what the file is made of."""

# ruff: noqa: ASYNC240 - a test may wait for the disk

import gc
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.store.sqlite import connection as sqlite_connection
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import MANY, SECOND, put

from .sqlite_helpers import files, opened, raw, reading, writing

WAL_IN_HEADER = b"\x02\x02"
IN_FORCE = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "temp_store": 2}


@pytest.fixture(params=["writer", "reader", "transaction"])
async def connection(
    request: pytest.FixtureRequest, store: SqliteStore
) -> AsyncIterator[sqlite3.Connection]:
    """Each kind of connection the store opens."""
    if request.param == "writer":
        yield writing(store)
    elif request.param == "reader":
        await store.counts()
        yield reading(store)[0]
    else:
        transaction = await store.begin(within=30 * SECOND)
        yield transaction.connection
        await transaction.rollback()


@pytest.mark.parametrize(("pragma", "value"), IN_FORCE.items())
def test_pragma_is_in_force_on_every_connection(
    connection: sqlite3.Connection, pragma: str, value: object
) -> None:
    [found] = connection.execute(f"PRAGMA {pragma}").fetchone()

    assert found == value


async def test_reader_cannot_write(store: SqliteStore) -> None:
    await put(store)
    await store.counts()
    [reader] = reading(store)

    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM outlast_waiting")

    assert len(await store.peek("default", limit=MANY)) == 1


async def test_file_stays_in_wal_mode_when_it_is_closed(path: Path) -> None:
    async with opened(path) as store:
        await put(store)

    assert path.read_bytes()[18:20] == WAL_IN_HEADER


async def test_open_store_is_one_file_and_its_two_companions(path: Path) -> None:
    async with opened(path) as store:
        await put(store)
        await store.counts()

        found = sorted(file.name for file in path.parent.iterdir())

    assert found == ["jobs.db", "jobs.db-shm", "jobs.db-wal"]


async def test_closed_store_is_one_file(path: Path) -> None:
    async with opened(path) as store:
        await put(store)
        await store.counts()
        await (await store.begin(within=SECOND)).rollback()

    assert files(path) == [""]
    assert {found.name for found in path.parent.iterdir()} == {path.name, f"{path.name}-locks"}


async def test_file_somebody_put_back_to_another_mode_is_in_wal_mode_again(path: Path) -> None:
    async with opened(path) as store:
        job_id = await put(store)
    with raw(path) as outsider:
        outsider.execute("PRAGMA journal_mode = DELETE")

    async with opened(path) as store:
        [mode] = writing(store).execute("PRAGMA journal_mode").fetchone()
        [job] = await store.get([job_id])

    assert mode == "wal"
    assert job is not None


async def test_scratch_tables_never_reach_the_file(store: SqliteStore, path: Path) -> None:
    await put(store)

    with raw(path) as outsider:
        names = {name for (name,) in outsider.execute("SELECT name FROM sqlite_schema")}

    assert names.isdisjoint({"outlast_selected", "outlast_changes"})


@pytest.mark.parametrize("version", [(3, 38, 0), (3, 40, 1), (3, 51, 2)])
def test_library_with_the_wal_fault_is_a_concern(version: tuple[int, int, int]) -> None:
    [concern] = sqlite_connection.health_warnings(version)

    assert ".".join(map(str, version)) in concern
    assert "3.51.3" in concern
    assert "Upgrade" in concern


@pytest.mark.parametrize("version", [(3, 51, 3), (3, 52, 0), (4, 0, 0)])
def test_library_without_the_wal_fault_is_no_concern(version: tuple[int, int, int]) -> None:
    assert sqlite_connection.health_warnings(version) == []


def test_concerns_are_about_the_library_in_use() -> None:
    assert sqlite_connection.health_warnings() == sqlite_connection.health_warnings(
        sqlite3.sqlite_version_info
    )


async def test_library_too_old_for_the_statements_is_refused_before_a_file_is_made(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.37.2")

    with pytest.raises(
        sqlite_connection.OperatorError, match=r"3\.37\.2.* needs 3\.38\.0 or newer"
    ):
        await SqliteStore(path).open()

    assert files(path) == []


async def test_connection_that_could_not_be_made_is_not_left_open(path: Path) -> None:
    path.write_text("no database\n" * 100)
    gc.collect()
    before = _connections()

    with pytest.raises(sqlite_connection.ForeignStore):
        await SqliteStore(path).open()

    assert _connections() == before


def _connections() -> int:
    """How many connections there are, closed ones left out."""
    found = (thing for thing in gc.get_objects() if isinstance(thing, sqlite3.Connection))
    return sum(1 for connection in found if _is_open(connection))


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.total_changes  # noqa: B018 - asks whether it is closed
    except sqlite3.ProgrammingError:
        return False
    return True

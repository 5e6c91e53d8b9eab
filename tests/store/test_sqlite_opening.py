"""Which files are opened, which are refused, and that a refused one is left as it was."""

# ruff: noqa: ASYNC240 - a test may wait for the disk

import sqlite3
from pathlib import Path

import pytest

from outlast.core.state import State
from outlast.errors import ForeignStore, OperatorError, OutlastError, SchemaTooNew, StoreCorrupt
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import ended, put
from support.crash.sqlite_target import dump

from .sqlite_helpers import files, opened, raw

NO_DATABASES = {
    "text": b"Dear diary, today I wrote a job queue.\n" * 40,
    "a line": b"jobs\n",
    "zeros": bytes(8192),
    "half a header": b"SQLite form",
    "a header and nonsense": b"SQLite format 3\0" + b"\x55" * 8192,
    "an image": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20,
}


async def _refusal(path: Path, *, adopt: bool = False) -> OutlastError:
    with pytest.raises(OutlastError) as refused:
        await SqliteStore(path, adopt=adopt).open()
    return refused.value


def _foreign(path: Path, mode: str) -> None:
    """The database of some other program."""
    with raw(path) as theirs:
        theirs.execute(f"PRAGMA journal_mode = {mode}")
        theirs.execute("CREATE TABLE books (title TEXT)")
        theirs.execute("INSERT INTO books VALUES ('Walden')")


async def _newer(path: Path, mode: str) -> None:
    """A file as a later Outlast would leave it."""
    async with opened(path) as store:
        await put(store)
    with raw(path) as later:
        later.execute("UPDATE outlast_meta SET version = 99")
        later.execute(f"PRAGMA journal_mode = {mode}")


@pytest.mark.parametrize("content", NO_DATABASES.values(), ids=NO_DATABASES)
@pytest.mark.parametrize("adopt", [False, True])
async def test_file_that_is_no_database_is_refused_untouched(
    path: Path, content: bytes, adopt: bool
) -> None:
    path.write_bytes(content)

    error = await _refusal(path, adopt=adopt)

    assert isinstance(error, ForeignStore)
    assert str(path) in str(error)
    assert "choose another file" in str(error)
    assert path.read_bytes() == content
    assert files(path) == [""]


async def test_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()

    async with opened(path) as store:
        job_id = await put(store)

        assert (await store.find(Filter(), limit=2))[0].id == job_id


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
async def test_database_of_something_else_is_refused_untouched(path: Path, mode: str) -> None:
    _foreign(path, mode)
    before = path.read_bytes()

    error = await _refusal(path)

    assert isinstance(error, ForeignStore)
    assert str(path) in str(error)
    assert "adopt=true" in str(error)
    assert path.read_bytes() == before
    assert files(path) == [""]


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
async def test_adopted_database_keeps_its_own_tables_and_gets_ours(path: Path, mode: str) -> None:
    _foreign(path, mode)

    async with opened(path, adopt=True) as store:
        job_id = await ended(store)
        with raw(path) as theirs:
            theirs.execute("INSERT INTO books VALUES ('Emma')")

    tables = dump(path)
    assert tables["books"] == [("Emma",), ("Walden",)]
    assert len(tables["outlast_ends"]) == 1
    async with opened(path) as again:
        [job] = await again.get([job_id])
    assert job is not None
    assert job.state is State.SUCCEEDED


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
@pytest.mark.parametrize("adopt", [False, True])
async def test_file_of_a_newer_outlast_is_refused_untouched(
    path: Path, mode: str, adopt: bool
) -> None:
    await _newer(path, mode)
    before = path.read_bytes()

    error = await _refusal(path, adopt=adopt)

    assert isinstance(error, SchemaTooNew)
    assert str(path) in str(error)
    assert "schema 99" in str(error)
    assert "upgrade Outlast" in str(error)
    assert path.read_bytes() == before
    assert files(path) == [""]


async def test_newer_outlast_may_have_added_to_its_own_table(path: Path) -> None:
    await _newer(path, "WAL")
    with raw(path) as later:
        later.execute(
            "CREATE TABLE kept (one INTEGER, version INTEGER, boot_id TEXT, who NOT NULL)"
        )
        later.execute("INSERT INTO kept SELECT one, version, boot_id, 'node' FROM outlast_meta")
        later.execute("DROP TABLE outlast_meta")
        later.execute("ALTER TABLE kept RENAME TO outlast_meta")

    error = await _refusal(path)

    assert isinstance(error, SchemaTooNew)


@pytest.mark.parametrize("kept", [4096 + 100, 0.5, 0.9], ids=["a page", "half", "most"])
async def test_file_cut_short_is_named_as_damaged(path: Path, kept: float) -> None:
    async with opened(path) as store:
        await put(store)
    whole = path.read_bytes()
    part = whole[: int(kept if kept > 1 else kept * len(whole))]
    path.write_bytes(part)

    error = await _refusal(path)

    assert isinstance(error, StoreCorrupt)
    assert str(path) in str(error)
    assert "damaged" in str(error)
    assert "restore it from a copy" in str(error)
    assert path.read_bytes() == part


async def test_missing_folder_is_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "jobs.db"

    error = await _refusal(path)

    assert isinstance(error, OperatorError)
    assert str(path) in str(error)
    assert "create its folder" in str(error)
    assert not path.parent.exists()


async def test_folder_is_no_file(tmp_path: Path) -> None:
    error = await _refusal(tmp_path)

    assert isinstance(error, OperatorError)
    assert str(tmp_path) in str(error)
    assert list(tmp_path.iterdir()) == []


async def test_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("a file\n")

    error = await _refusal(tmp_path / "jobs" / "jobs.db")

    assert isinstance(error, OperatorError)
    assert (tmp_path / "jobs").read_text() == "a file\n"


async def test_name_too_long_for_the_disk_is_refused(tmp_path: Path) -> None:
    error = await _refusal(tmp_path / ("j" * 300))

    assert isinstance(error, OperatorError)
    assert list(tmp_path.iterdir()) == []


async def test_store_that_could_not_be_opened_opens_once_the_cause_is_gone(path: Path) -> None:
    path.write_bytes(NO_DATABASES["text"])
    store = SqliteStore(path)
    with pytest.raises(ForeignStore):
        await store.open()
    path.unlink()

    await store.open()

    job_id = await put(store)
    await store.close()
    with raw(path) as outsider:
        assert outsider.execute("SELECT id FROM outlast_jobs").fetchall() == [(job_id,)]


async def test_refusal_says_what_sqlite_said_too(path: Path) -> None:
    path.write_bytes(NO_DATABASES["text"])

    error = await _refusal(path)

    assert isinstance(error.__cause__, sqlite3.DatabaseError)

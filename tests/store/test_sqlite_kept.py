"""What cannot be deleted or written over, refused by the database itself."""

import sqlite3

import pytest

from outlast.core.event import Skipped
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import SUCCEEDED, ended, put, settle, started

from .schema import columns
from .sqlite_helpers import DbOf

OTHER = {
    "outlast_jobs": ("params", "'[\"another\"]'"),
    "outlast_open_runs": ("token", "7"),
    "outlast_runs": ("status", "'failed'"),
    "outlast_ends": ("state", "'cancelled'"),
}
"""For each table a column, and another value that its checks would take."""


async def history(store: SqliteStore) -> None:
    """An ended job with its run, and one that runs."""
    await ended(store)
    await started(store)


async def two_of_each(store: SqliteStore) -> None:
    await ended(store)
    await history(store)
    await started(store)


async def waiting(store: SqliteStore) -> None:
    await put(store)


async def skipped(store: SqliteStore) -> None:
    await ended(store, Skipped())


def test_waiting_job_cannot_be_deleted(db_of: DbOf) -> None:
    db = db_of(waiting)

    with pytest.raises(sqlite3.IntegrityError, match="a job that has not ended cannot be deleted"):
        db.execute("DELETE FROM outlast_jobs")


async def test_running_job_cannot_be_deleted(store: SqliteStore, db: sqlite3.Connection) -> None:
    claim = await started(store)

    with pytest.raises(sqlite3.IntegrityError, match="a job that has not ended cannot be deleted"):
        db.execute("DELETE FROM outlast_jobs")

    assert await settle(store, claim, SUCCEEDED)


def test_ended_job_goes_with_all_its_records(db_of: DbOf) -> None:
    tables = ("outlast_runs", "outlast_ends", "outlast_events", "outlast_logs")
    db = db_of(skipped)
    db.execute("INSERT INTO outlast_logs SELECT seq, 1, 1, 1, 'x' FROM outlast_jobs")
    before = [len(_rows(db, table)) for table in tables]

    db.execute("DELETE FROM outlast_jobs")

    assert before == [1, 1, 1, 1]
    assert [_rows(db, table) for table in tables] == [[], [], [], []]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("outlast_runs", "outlast: a run goes only with its job"),
        ("outlast_ends", "outlast: an end goes only with its job"),
        ("outlast_open_runs", "outlast: "),
    ],
)
def test_record_cannot_be_deleted_by_itself(db_of: DbOf, table: str, message: str) -> None:
    db = db_of(history)
    before = _rows(db, table)

    with pytest.raises(sqlite3.IntegrityError, match=message):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - ours

    assert _rows(db, table) == before


@pytest.mark.parametrize("verb", ["INSERT OR REPLACE", "INSERT"])
@pytest.mark.parametrize("table", OTHER)
def test_record_is_never_written_a_second_time(db_of: DbOf, table: str, verb: str) -> None:
    db = db_of(history)
    before = list(db.iterdump())
    column, value = OTHER[table]
    taken = ", ".join(value if each.name == column else each.name for each in columns(table))

    with pytest.raises(sqlite3.IntegrityError):
        db.execute(f"{verb} INTO {table} SELECT {taken} FROM {table}")  # noqa: S608 - ours

    assert list(db.iterdump()) == before


@pytest.mark.parametrize("table", OTHER)
def test_record_is_never_moved_over_another(db_of: DbOf, table: str) -> None:
    db = db_of(two_of_each)
    before = list(db.iterdump())
    key = columns(table)[0].name

    with pytest.raises(sqlite3.IntegrityError):
        db.execute(f"UPDATE OR REPLACE {table} SET {key} = {key} + 1")  # noqa: S608 - ours

    assert list(db.iterdump()) == before


def _rows(db: sqlite3.Connection, table: str) -> list[object]:
    return db.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - ours

"""What can never stand in the tables together, refused by the database itself."""

import sqlite3
from typing import Any

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import Failed
from outlast.core.job import DedupeKey, Slot
from outlast.core.state import FINAL, WAITING, RunStatus, State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START
from outlast.testing.conformance.factories import ended, new_id, put, settle, started

from .schema import Reference, references
from .sqlite_helpers import DbOf

NOWHERE = 999_999
LINKED, ONCE = {"delivery": Delivery.LINKED}, {"delivery": Delivery.ONCE}


def _row(db: sqlite3.Connection, table: str, **over: Any) -> dict[str, Any]:
    """The last row of that table, with something else in it."""
    cursor = db.execute(f"SELECT * FROM {table}")  # noqa: S608 - ours
    names = [name for name, *_ in cursor.description]
    return {**dict(zip(names, cursor.fetchall()[-1], strict=True)), **over}


def _insert(db: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    places = ", ".join(f":{name}" for name in row)
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", row)  # noqa: S608 - ours


def _refused(db: sqlite3.Connection, table: str, row: dict[str, Any], message: str) -> None:
    before = list(db.iterdump())
    with pytest.raises(sqlite3.IntegrityError, match=message):
        _insert(db, table, row)
    assert list(db.iterdump()) == before


async def one_of_each(store: SqliteStore) -> None:
    """A row in every table: a chain of two, one that runs, one that waits, keys and a slot."""
    claim = await started(store, slot=Slot(series="daily", at=START), **LINKED)
    await settle(store, claim, Failed("it broke"))
    await started(store, key=DedupeKey(key="k"), queue="other")
    await put(store, metadata='{"tags":["a"]}')


async def ended_then_running_then_waiting(store: SqliteStore) -> None:
    await ended(store)
    await started(store)
    await put(store)


async def running_then_waiting(store: SqliteStore) -> None:
    await started(store)
    await put(store)


async def once_running_then_waiting(store: SqliteStore) -> None:
    await started(store, **ONCE)
    await put(store, **ONCE)


async def chained(store: SqliteStore) -> None:
    await ended(store, Failed("it broke"), **LINKED)


@pytest.mark.parametrize("reference", references(), ids=str)
def test_row_that_refers_to_nothing_is_refused(db_of: DbOf, reference: Reference) -> None:
    db = db_of(one_of_each)
    fresh: dict[str, Any] = {
        "outlast_jobs": {"seq": None, "id": new_id(), "retry_of": 2, "root": 1},
        "outlast_open_runs": {"job": 4, "run_id": new_id()},
        "outlast_runs": {"job": 2, "token": 9, "run_id": new_id()},
        "outlast_events": {"id": None},
    }.get(reference.table, {})

    orphan = _row(db, reference.table, **fresh) | {reference.column: NOWHERE}

    _refused(db, reference.table, orphan, "FOREIGN KEY")


def test_job_runs_once_at_a_time(db_of: DbOf) -> None:
    db = db_of(running_then_waiting)

    second = _row(db, "outlast_open_runs", token=2, run_id=new_id())

    _refused(db, "outlast_open_runs", second, "UNIQUE|outlast: that")


def test_job_ends_once(db_of: DbOf) -> None:
    db = db_of(ended_then_running_then_waiting)

    second = _row(db, "outlast_ends", state="cancelled")

    _refused(db, "outlast_ends", second, "UNIQUE|outlast: that")


def test_job_has_one_successor(db_of: DbOf) -> None:
    db = db_of(chained)

    second = _row(db, "outlast_jobs", seq=None, id=new_id())

    assert second["retry_of"] == 1
    _refused(db, "outlast_jobs", second, "UNIQUE")


def test_once_job_of_a_name_runs_once_at_a_time(db_of: DbOf) -> None:
    db = db_of(once_running_then_waiting)

    second = _row(db, "outlast_open_runs", job=2, run_id=new_id())

    _refused(db, "outlast_open_runs", second, "UNIQUE|outlast: that")


@pytest.mark.parametrize("delivery", [Delivery.LINKED, Delivery.ONCE])
def test_started_job_that_runs_once_never_waits_again(db_of: DbOf, delivery: Delivery) -> None:
    db = db_of(running_then_waiting)
    db.execute("DROP TRIGGER outlast_waiting_unended")  # so that only the check is left

    waiting = _row(db, "outlast_waiting", job=1, delivery=delivery, token=1)

    _refused(db, "outlast_waiting", waiting, "runs_again")


@pytest.mark.parametrize("delivery", [Delivery.LINKED, Delivery.ONCE])
def test_job_that_runs_once_has_one_token(db_of: DbOf, delivery: Delivery) -> None:
    db = db_of(running_then_waiting)

    second = _row(db, "outlast_open_runs", job=2, token=2, delivery=delivery, run_id=new_id())

    _refused(db, "outlast_open_runs", second, "one_run")


@pytest.mark.parametrize("token", [0, -1])
def test_run_without_a_token_is_refused(db_of: DbOf, token: int) -> None:
    db = db_of(running_then_waiting)

    unfenced = _row(db, "outlast_open_runs", job=2, token=token, run_id=new_id())

    _refused(db, "outlast_open_runs", unfenced, "token_rises")


@pytest.mark.parametrize("table", ["outlast_waiting", "outlast_open_runs"])
def test_ended_job_comes_back_nowhere(db_of: DbOf, table: str) -> None:
    db = db_of(ended_then_running_then_waiting)

    back = _row(db, table, job=1)

    _refused(db, table, back, "outlast: an ended job never|or has ended does not wait")


def test_job_that_runs_does_not_wait(db_of: DbOf) -> None:
    db = db_of(running_then_waiting)

    waiting = _row(db, "outlast_waiting", job=1)

    _refused(db, "outlast_waiting", waiting, "outlast: a job that runs")


@pytest.mark.parametrize("job", [2, 3], ids=["running", "waiting"])
def test_job_that_runs_or_waits_has_no_end(db_of: DbOf, job: int) -> None:
    db = db_of(ended_then_running_then_waiting)

    early = _row(db, "outlast_ends", job=job)

    _refused(db, "outlast_ends", early, "outlast: a job that waits or runs has not ended")


ALL_STATES = [*State, "unknown", "QUEUED", "", "queued "]


@pytest.mark.parametrize("state", ALL_STATES)
def test_job_waits_in_waiting_states_only(db_of: DbOf, state: str) -> None:
    db = db_of(running_then_waiting)
    db.execute("DROP TRIGGER outlast_waiting_unended")  # so that only the check is left

    waiting = _row(db, "outlast_waiting", job=1, state=state)

    if state in WAITING:
        _insert(db, "outlast_waiting", waiting)
    else:
        _refused(db, "outlast_waiting", waiting, "waiting_state")


@pytest.mark.parametrize("state", ALL_STATES)
def test_job_ends_in_final_states_only(db_of: DbOf, state: str) -> None:
    db = db_of(ended_then_running_then_waiting)
    db.execute("DROP TRIGGER outlast_ends_alone")  # so that only the check on the state is left

    end = _row(db, "outlast_ends", job=2, state=state)

    if state in FINAL:
        _insert(db, "outlast_ends", end)
    else:
        _refused(db, "outlast_ends", end, "end_state")


@pytest.mark.parametrize("status", [*RunStatus, "unknown", "SUCCEEDED", ""])
def test_closed_run_has_a_final_status(db_of: DbOf, status: str) -> None:
    db = db_of(ended_then_running_then_waiting)

    run = _row(db, "outlast_runs", token=2, run_id=new_id(), status=status)

    if status in set(RunStatus) - {RunStatus.RUNNING}:
        _insert(db, "outlast_runs", run)
    else:
        _refused(db, "outlast_runs", run, "run_status")

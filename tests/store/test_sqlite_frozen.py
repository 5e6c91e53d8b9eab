"""What never changes any more, refused by the database itself (S1 INV-001, INV-002).

The columns come from the schema: a new one is expected to be frozen until somebody decides
otherwise here.
"""

import sqlite3
from collections.abc import Iterable

import pytest

from holdfast.core.delivery import Delivery
from holdfast.core.event import CancelRequested, Event, Failed, Skipped, Succeeded
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.conformance.make import HOUR, ended, job_of, put, settle, started
from holdfast.testing.sqlite_bench import dump

from .schema import Column, columns

FILLED_ONCE = {"exit_code", "error"}
MAY_CHANGE = {
    "holdfast_runs": FILLED_ONCE | {"artifacts"},
    "holdfast_open_runs": {"lease_until", "cancel", "artifacts"},
}
CHAIN = {"delivery": Delivery.CHAIN}

JOB = "holdfast: a job is frozen at its first claim"
RUN = "holdfast: a closed run is frozen"
OPEN_RUN = "holdfast: of an open run only lease, cancel mark and artifacts change"
END = "holdfast: an end is final"


def _each(table: str, *, but: Iterable[str] = ()) -> pytest.MarkDecorator:
    found = [column for column in columns(table) if column.name not in set(but)]
    return pytest.mark.parametrize("column", found, ids=str)


def _refused(db: sqlite3.Connection, statement: str, message: str) -> None:
    """The database refuses that statement, with our words, and nothing has changed."""
    before = list(db.iterdump())
    with pytest.raises(sqlite3.IntegrityError, match=message):
        db.execute(statement)
    assert list(db.iterdump()) == before


def _passes(db: sqlite3.Connection, statement: str) -> None:
    assert db.execute(statement).rowcount == 1


@_each("holdfast_jobs", but={"params"})
async def test_waiting_job_is_frozen_but_for_its_params(
    store: SqliteStore, db: sqlite3.Connection, column: Column
) -> None:
    await put(store)

    _refused(db, column.update, JOB)


async def test_params_may_be_edited_before_the_first_claim(
    store: SqliteStore, db: sqlite3.Connection
) -> None:
    job_id = await put(store)

    _passes(db, "UPDATE holdfast_jobs SET params = '[1]'")

    assert (await job_of(store, job_id)).params == "[1]"


@_each("holdfast_jobs")
async def test_claimed_job_is_frozen(
    store: SqliteStore, db: sqlite3.Connection, column: Column
) -> None:
    await started(store)

    _refused(db, column.update, JOB)


@_each("holdfast_jobs")
async def test_job_put_back_stays_frozen(
    store: SqliteStore, db: sqlite3.Connection, column: Column
) -> None:
    await ended(store, Failed("it broke", HOUR))

    _refused(db, column.update, JOB)


@_each("holdfast_jobs")
async def test_ended_job_is_frozen(
    store: SqliteStore, db: sqlite3.Connection, column: Column
) -> None:
    await ended(store)

    _refused(db, column.update, JOB)


@_each("holdfast_jobs")
async def test_job_cancelled_unrun_is_frozen(
    store: SqliteStore, db: sqlite3.Connection, column: Column
) -> None:
    await settle(store, await job_of(store, await put(store)), CancelRequested())

    _refused(db, column.update, JOB)


@_each("holdfast_open_runs", but=MAY_CHANGE["holdfast_open_runs"])
async def test_open_run_is_frozen(
    store: SqliteStore, db: sqlite3.Connection, column: Column
) -> None:
    await started(store)

    _refused(db, column.update, OPEN_RUN)


@_each("holdfast_runs", but=MAY_CHANGE["holdfast_runs"])
@pytest.mark.parametrize("end", [Succeeded("1"), Skipped()], ids=["succeeded", "skipped"])
async def test_closed_run_is_frozen(
    store: SqliteStore, db: sqlite3.Connection, column: Column, end: Event
) -> None:
    await ended(store, end)

    _refused(db, column.update, RUN)


@_each("holdfast_ends")
@pytest.mark.parametrize("delivery", list(Delivery)[:3])
async def test_end_is_frozen(
    store: SqliteStore, db: sqlite3.Connection, column: Column, delivery: Delivery
) -> None:
    await ended(store, delivery=delivery)

    _refused(db, column.update, END)


@_each("holdfast_ends", but={"state"})
async def test_failed_end_is_frozen_but_for_its_state(
    store: SqliteStore, db: sqlite3.Connection, column: Column
) -> None:
    await ended(store, Failed("it broke"), **CHAIN)

    _refused(db, column.update, END)


@_each("holdfast_ends", but={"state", "reason"})
async def test_declaring_a_failure_dead_changes_state_and_reason_only(
    store: SqliteStore, db: sqlite3.Connection, column: Column
) -> None:
    await ended(store, Failed("it broke"), **CHAIN)

    _refused(db, f"{column.update}, state = 'dead_letter', reason = 'hopeless'", END)


async def test_failure_may_be_declared_dead_once(
    store: SqliteStore, db: sqlite3.Connection
) -> None:
    await ended(store, Failed("it broke"), **CHAIN)

    _passes(db, "UPDATE holdfast_ends SET state = 'dead_letter', reason = 'hopeless'")

    _refused(db, "UPDATE holdfast_ends SET state = 'failed'", END)
    _refused(db, "UPDATE holdfast_ends SET reason = 'changed my mind'", END)


@pytest.mark.parametrize("state", ["succeeded", "failed", "skipped", "cancelled", "dead_letter"])
async def test_success_stays_one(store: SqliteStore, db: sqlite3.Connection, state: str) -> None:
    await ended(store)

    _refused(db, f"UPDATE holdfast_ends SET state = '{state}', reason = 'x'", END)  # noqa: S608 - from the list above


@pytest.mark.parametrize("column", sorted(FILLED_ONCE))
async def test_empty_column_of_a_closed_run_is_filled_once(
    store: SqliteStore, db: sqlite3.Connection, column: str
) -> None:
    await ended(store)

    _passes(db, f"UPDATE holdfast_runs SET {column} = 3")  # noqa: S608 - from the list above

    _refused(db, f"UPDATE holdfast_runs SET {column} = 4", RUN)  # noqa: S608 - same
    _refused(db, f"UPDATE holdfast_runs SET {column} = NULL", RUN)  # noqa: S608 - same


async def test_error_that_was_written_stays(store: SqliteStore, db: sqlite3.Connection) -> None:
    await ended(store, Failed("it broke", permanent=True))

    _refused(db, "UPDATE holdfast_runs SET error = 'all is well'", RUN)


async def test_lease_moves_and_a_cancel_mark_is_set_but_never_taken_back(
    store: SqliteStore, db: sqlite3.Connection
) -> None:
    await started(store)

    _passes(db, "UPDATE holdfast_open_runs SET lease_until = 7")
    _passes(db, "UPDATE holdfast_open_runs SET cancel = 1")

    _refused(db, "UPDATE holdfast_open_runs SET cancel = 0", OPEN_RUN)


async def _with_artifacts(store: SqliteStore, table: str) -> str:
    """A run in that table with two artifacts; what the database says when it will not change."""
    claim = await started(store)
    await store.attach(claim.lease, ["a.txt", "b.txt"])
    if table == "holdfast_runs":
        await settle(store, claim, Succeeded())
        return RUN
    return OPEN_RUN


@pytest.mark.parametrize("table", ["holdfast_runs", "holdfast_open_runs"])
async def test_artifacts_may_be_appended(
    store: SqliteStore, db: sqlite3.Connection, table: str
) -> None:
    await _with_artifacts(store, table)

    _passes(db, f"""UPDATE {table} SET artifacts = '["a.txt","b.txt","c.txt"]'""")  # noqa: S608 - ours


@pytest.mark.parametrize("table", ["holdfast_runs", "holdfast_open_runs"])
@pytest.mark.parametrize(
    "other",
    [
        "[]",
        '["a.txt"]',
        '["b.txt","a.txt"]',
        '["a.txt","x.txt"]',
        '["a.txt","b.txt2"]',
        '["new","a.txt","b.txt"]',
        '["a.txt","b.txt"',
        '["a.txt","b.txt" and more',
    ],
)
async def test_artifacts_are_never_taken_back_changed_or_spoiled(
    store: SqliteStore, db: sqlite3.Connection, table: str, other: str
) -> None:
    await _with_artifacts(store, table)
    before = list(db.iterdump())

    with pytest.raises(sqlite3.IntegrityError):
        db.execute(f"UPDATE {table} SET artifacts = ?", (other,))  # noqa: S608 - ours

    assert list(db.iterdump()) == before
    assert dump(store.path)

"""What never changes any more, refused by the database itself (S1 INV-001, INV-002).

The columns come from the schema: a new one is expected to be frozen until somebody decides
otherwise here.
"""

import sqlite3
from collections.abc import Iterable

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, Failed, Skipped, Succeeded
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import (
    HOUR,
    ended,
    job_of,
    put,
    put_group,
    settle,
    started,
)

from .schema import Column, columns
from .sqlite_helpers import DbOf, Make

FILLED_ONCE = {"exit_code", "error"}
RUN_MAY_CHANGE = FILLED_ONCE | {"artifacts"}
OPEN_RUN_MAY_CHANGE = {"lease_until", "cancel", "progress", "artifacts"}

JOB = "outlast: a job is frozen at its first claim"
RUN = "outlast: a closed run is frozen"
OPEN_RUN = "outlast: of an open run only lease, cancel mark, progress and artifacts change"
END = "outlast: an end is final"
GROUP = "outlast: a group is sealed once, closed once and then swept"


async def waiting(store: SqliteStore) -> None:
    await put(store)


async def claimed(store: SqliteStore) -> None:
    await started(store)


async def put_back(store: SqliteStore) -> None:
    await ended(store, Failed("it broke", HOUR))


async def succeeded(store: SqliteStore) -> None:
    await ended(store, Succeeded("1"))


async def skipped(store: SqliteStore) -> None:
    await ended(store, Skipped("nothing to do"))


async def dead(store: SqliteStore) -> None:
    await ended(store, Failed("it broke", permanent=True))


async def cancelled_unrun(store: SqliteStore) -> None:
    await settle(store, await job_of(store, await put(store)), CancelRequested())


async def failed(store: SqliteStore) -> None:
    await ended(store, Failed("it broke"), delivery=Delivery.LINKED)


async def done_once(store: SqliteStore) -> None:
    await ended(store, delivery=Delivery.ONCE)


async def open_with_artifacts(store: SqliteStore) -> None:
    await store.attach((await started(store)).lease, ["a.txt", "b.txt"])


async def closed_with_artifacts(store: SqliteStore) -> None:
    claim = await started(store)
    await store.attach(claim.lease, ["a.txt", "b.txt"])
    await settle(store, claim, Succeeded())


async def stopped_group(store: SqliteStore) -> None:
    group_id, _ = await put_group(store)
    await store.stop_group(group_id, reason="enough")


async def sealed_group(store: SqliteStore) -> None:
    await put_group(store)


def _each(table: str, *, but: Iterable[str] = ()) -> pytest.MarkDecorator:
    found = [column for column in columns(table) if column.name not in set(but)]
    return pytest.mark.parametrize("column", found, ids=str)


def _in(*worlds: Make) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("world", worlds, ids=lambda make: make.__name__)


def _refused(db: sqlite3.Connection, statement: str, message: str) -> None:
    """The database refuses that statement, with our words, and nothing has changed."""
    before = list(db.iterdump())
    with pytest.raises(sqlite3.IntegrityError, match=message):
        db.execute(statement)
    assert list(db.iterdump()) == before


def _passes(db: sqlite3.Connection, statement: str) -> None:
    assert db.execute(statement).rowcount == 1


@_each("outlast_jobs", but={"params"})
def test_waiting_job_is_frozen_but_for_its_params(db_of: DbOf, column: Column) -> None:
    db = db_of(waiting)

    _refused(db, column.update, JOB)


def test_params_may_be_edited_before_the_first_claim(db_of: DbOf) -> None:
    db = db_of(waiting)

    _passes(db, "UPDATE outlast_jobs SET params = '[1]'")


@_each("outlast_jobs")
@_in(claimed, put_back, succeeded, cancelled_unrun)
def test_job_is_frozen_once_it_was_claimed_or_ended(
    db_of: DbOf, world: Make, column: Column
) -> None:
    db = db_of(world)

    _refused(db, column.update, JOB)


@_each("outlast_open_runs", but=OPEN_RUN_MAY_CHANGE)
def test_open_run_is_frozen(db_of: DbOf, column: Column) -> None:
    db = db_of(claimed)

    _refused(db, column.update, OPEN_RUN)


@_each("outlast_runs", but=RUN_MAY_CHANGE)
@_in(succeeded, skipped, dead, put_back)
def test_closed_run_is_frozen(db_of: DbOf, world: Make, column: Column) -> None:
    db = db_of(world)

    _refused(db, column.update, RUN)


@_each("outlast_ends")
@_in(succeeded, skipped, dead, cancelled_unrun, done_once)
def test_end_is_frozen(db_of: DbOf, world: Make, column: Column) -> None:
    db = db_of(world)

    _refused(db, column.update, END)


@_each("outlast_ends", but={"state"})
def test_failed_end_is_frozen_but_for_its_state(db_of: DbOf, column: Column) -> None:
    db = db_of(failed)

    _refused(db, column.update, END)


@_each("outlast_ends", but={"state", "reason"})
def test_declaring_a_failure_dead_changes_state_and_reason_only(
    db_of: DbOf, column: Column
) -> None:
    db = db_of(failed)

    _refused(db, f"{column.update}, state = 'dead_letter', reason = 'hopeless'", END)


def test_failure_may_be_declared_dead_once(db_of: DbOf) -> None:
    db = db_of(failed)

    _passes(db, "UPDATE outlast_ends SET state = 'dead_letter', reason = 'hopeless'")

    _refused(db, "UPDATE outlast_ends SET state = 'failed'", END)
    _refused(db, "UPDATE outlast_ends SET reason = 'changed my mind'", END)


@pytest.mark.parametrize("state", ["succeeded", "failed", "skipped", "cancelled", "dead_letter"])
def test_success_stays_one(db_of: DbOf, state: str) -> None:
    db = db_of(succeeded)

    _refused(db, f"UPDATE outlast_ends SET state = '{state}', reason = 'x'", END)  # noqa: S608 - from the list above


@pytest.mark.parametrize("column", sorted(FILLED_ONCE))
def test_empty_column_of_a_closed_run_is_filled_once(db_of: DbOf, column: str) -> None:
    db = db_of(succeeded)

    _passes(db, f"UPDATE outlast_runs SET {column} = 3")  # noqa: S608 - from the list above

    _refused(db, f"UPDATE outlast_runs SET {column} = 4", RUN)  # noqa: S608 - same
    _refused(db, f"UPDATE outlast_runs SET {column} = NULL", RUN)  # noqa: S608 - same


def test_error_that_was_written_stays(db_of: DbOf) -> None:
    db = db_of(dead)

    _refused(db, "UPDATE outlast_runs SET error = 'all is well'", RUN)


def test_lease_moves_and_a_cancel_mark_is_set_but_never_taken_back(db_of: DbOf) -> None:
    db = db_of(claimed)

    _passes(db, "UPDATE outlast_open_runs SET lease_until = 7")
    _passes(db, "UPDATE outlast_open_runs SET cancel = 1")

    _refused(db, "UPDATE outlast_open_runs SET cancel = 0", OPEN_RUN)


@_each("outlast_groups", but={"swept"})
def test_stopped_group_is_frozen(db_of: DbOf, column: Column) -> None:
    db = db_of(stopped_group)

    _refused(db, column.update, GROUP)


@_each("outlast_groups", but={"closing"})
def test_sealed_group_is_frozen_until_it_closes(db_of: DbOf, column: Column) -> None:
    db = db_of(sealed_group)

    _refused(db, column.update, GROUP)
    _passes(db, "UPDATE outlast_groups SET closing = 'skip', reason = 'enough'")


def test_group_is_swept_once_and_for_all(db_of: DbOf) -> None:
    db = db_of(stopped_group)

    _passes(db, "UPDATE outlast_groups SET swept = 1")

    _refused(db, "UPDATE outlast_groups SET swept = 0", GROUP)


WITH_ARTIFACTS = [
    ("outlast_open_runs", open_with_artifacts),
    ("outlast_runs", closed_with_artifacts),
]


@pytest.mark.parametrize(("table", "world"), WITH_ARTIFACTS)
def test_artifacts_may_be_appended(db_of: DbOf, table: str, world: Make) -> None:
    db = db_of(world)

    _passes(db, f"""UPDATE {table} SET artifacts = '["a.txt","b.txt","c.txt"]'""")  # noqa: S608 - ours


@pytest.mark.parametrize(("table", "world"), WITH_ARTIFACTS)
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
def test_artifacts_are_never_taken_back_changed_or_spoiled(
    db_of: DbOf, table: str, world: Make, other: str
) -> None:
    db = db_of(world)

    _refused(db, f"UPDATE {table} SET artifacts = '{other}'", "outlast: |CHECK")  # noqa: S608 - from the list above

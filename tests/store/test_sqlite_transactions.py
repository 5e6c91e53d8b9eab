"""`begin`: effects and finish together, or neither."""

import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outlast.core.decide import Change, decide
from outlast.core.run import Claim
from outlast.core.state import State
from outlast.errors import OutlastError, RunError
from outlast.store.sqlite.handler_transaction import SqliteTransaction
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import (
    FAILED,
    LOST,
    SUCCEEDED,
    job_of,
    make_job,
    new_id,
    settle,
    started,
)
from support.crash.sqlite_target import dump

from .sqlite_helpers import PATIENCE

LONG = timedelta(seconds=PATIENCE)
INVOICE = "INSERT INTO effects VALUES ('invoice')"


def _end(claim: Claim) -> list[Change]:
    return [decide(claim, SUCCEEDED, new_id=new_id)]


def _effects(path: Path) -> int:
    return len(dump(path)["effects"])


async def test_effect_and_finish_are_committed_together(
    store: SqliteStore, path: Path, claim: Claim, transaction: SqliteTransaction
) -> None:
    transaction.connection.execute(INVOICE)
    before = _effects(path)

    committed = await transaction.commit(_end(claim))

    assert committed
    assert (before, _effects(path)) == (0, 1)
    assert (await job_of(store, claim.id)).state is State.SUCCEEDED


async def test_rollback_undoes_the_effect_and_leaves_the_run_open(
    store: SqliteStore, path: Path, claim: Claim, transaction: SqliteTransaction
) -> None:
    transaction.connection.execute(INVOICE)

    await transaction.rollback()
    await transaction.rollback()

    assert _effects(path) == 0
    assert await settle(store, claim, SUCCEEDED)


async def test_refused_finish_takes_the_effect_with_it(
    store: SqliteStore, path: Path, claim: Claim
) -> None:
    await settle(store, claim, LOST)
    transaction = await store.begin(within=LONG)
    transaction.connection.execute(INVOICE)

    committed = await transaction.commit(_end(claim))

    assert not committed
    assert _effects(path) == 0
    assert (await job_of(store, claim.id)).state is State.QUEUED


async def test_one_refused_change_of_several_takes_all_with_it(
    store: SqliteStore, claim: Claim
) -> None:
    stale = await started(store)
    await settle(store, stale, FAILED)
    transaction = await store.begin(within=LONG)

    committed = await transaction.commit([*_end(claim), *_end(stale)])

    assert not committed
    assert (await job_of(store, claim.id)).state is State.RUNNING


async def test_enqueue_can_be_part_of_the_transaction(
    store: SqliteStore, claim: Claim, transaction: SqliteTransaction
) -> None:
    following = make_job()

    [added] = await store.add_within(transaction.connection, [following])
    await transaction.commit(_end(claim))

    assert added.created
    assert (await job_of(store, following.id)).state is State.QUEUED


@pytest.mark.parametrize("text", [str, bytes, bytearray])
@pytest.mark.parametrize("row", [None, sqlite3.Row, lambda _, row: {"row": row}])
async def test_whatever_the_handler_sets_on_its_connection_the_finish_is_written(
    claim: Claim, transaction: SqliteTransaction, text: Any, row: Any
) -> None:
    transaction.connection.text_factory = text
    transaction.connection.row_factory = row
    transaction.connection.isolation_level = "DEFERRED"

    assert await transaction.commit(_end(claim))


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "BEGIN"])
async def test_handler_cannot_end_the_transaction_by_itself(
    store: SqliteStore, path: Path, claim: Claim, transaction: SqliteTransaction, statement: str
) -> None:
    transaction.connection.execute(INVOICE)

    with pytest.raises(RunError, match="leave commit"):
        transaction.connection.execute(statement)
    with pytest.raises(RunError, match="leave commit"):
        await transaction.commit(_end(claim))

    assert _effects(path) == 0
    assert (await job_of(store, claim.id)).state is State.RUNNING, "the finish was not written"


async def test_finish_that_cannot_be_kept_takes_the_effect_with_it(
    store: SqliteStore, path: Path, claim: Claim, transaction: SqliteTransaction
) -> None:
    transaction.connection.execute(INVOICE)
    [change] = _end(claim)
    unkeepable = Change(change.job_id, change.token, change.move, result="no json")

    try:
        committed = await transaction.commit([unkeepable])
    except OutlastError:
        committed = False

    assert not committed
    assert _effects(path) == 0
    assert await settle(store, claim, SUCCEEDED)

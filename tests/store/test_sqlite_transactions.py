"""`begin`: effects and finish together, bounded in time, and the writer waits and goes on."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.decide import Change, decide
from holdfast.core.run import Claim
from holdfast.core.state import State
from holdfast.errors import HoldfastError, OperatorError, StoreBusy, TransactionTimeout
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.transaction import SqliteTransaction
from holdfast.testing.conformance.make import (
    FAILED,
    LOST,
    SUCCEEDED,
    job_of,
    make_job,
    new_id,
    put,
    settle,
    started,
)
from holdfast.testing.sqlite_bench import dump

from .kit import PATIENCE, Trace, opened, raw

LONG = timedelta(seconds=PATIENCE)
SHORT = timedelta(milliseconds=50)
INVOICE = "INSERT INTO effects VALUES ('invoice')"


@pytest.fixture
async def claim(store: SqliteStore, path: Path) -> Claim:
    """A run under way, and a table for its effects."""
    with raw(path) as own:
        own.execute("CREATE TABLE effects (what TEXT)")
    return await started(store)


@pytest.fixture
async def open_transaction(
    store: SqliteStore, claim: Claim
) -> AsyncIterator[SqliteTransaction]:
    transaction = await store.begin(within=LONG)
    yield transaction
    await transaction.rollback()


def _end(claim: Claim) -> list[Change]:
    return [decide(claim, SUCCEEDED, new_id=new_id)]


def _effects(path: Path) -> int:
    return len(dump(path)["effects"])


async def _expired(transaction: SqliteTransaction) -> None:
    """Wait until its time is over."""
    await asyncio.to_thread(transaction._timer.join, PATIENCE)


async def test_effect_and_finish_are_committed_together(
    store: SqliteStore, path: Path, claim: Claim, open_transaction: SqliteTransaction
) -> None:
    open_transaction.connection.execute(INVOICE)
    before = _effects(path)

    committed = await open_transaction.commit(_end(claim))

    assert committed
    assert (before, _effects(path)) == (0, 1)
    assert (await job_of(store, claim.id)).state is State.SUCCEEDED


async def test_rollback_undoes_the_effect_and_leaves_the_run_open(
    store: SqliteStore, path: Path, claim: Claim, open_transaction: SqliteTransaction
) -> None:
    open_transaction.connection.execute(INVOICE)

    await open_transaction.rollback()
    await open_transaction.rollback()

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


async def test_transaction_that_takes_too_long_is_rolled_back_and_says_so(
    store: SqliteStore, path: Path, claim: Claim
) -> None:
    transaction = await store.begin(within=SHORT)
    transaction.connection.execute(INVOICE)
    await _expired(transaction)

    with pytest.raises(TransactionTimeout) as late:
        await transaction.commit(_end(claim))

    assert str(path) in str(late.value)
    assert "0.05 s" in str(late.value)
    assert _effects(path) == 0
    assert (await job_of(store, claim.id)).state is State.RUNNING


async def test_statement_after_the_time_is_over_writes_nothing(
    store: SqliteStore, path: Path, claim: Claim
) -> None:
    transaction = await store.begin(within=SHORT)
    await _expired(transaction)

    with pytest.raises(sqlite3.Error):
        transaction.connection.execute(INVOICE)

    assert _effects(path) == 0


async def test_statement_under_way_when_the_time_is_over_is_interrupted(
    store: SqliteStore, path: Path, claim: Claim
) -> None:
    endless = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "INSERT INTO effects SELECT i FROM n"
    )

    for _ in range(5):
        transaction = await store.begin(within=SHORT)
        with pytest.raises(sqlite3.Error):  # something a handler can expect, no MemoryError
            await asyncio.to_thread(transaction.connection.execute, endless)

    assert _effects(path) == 0
    assert await put(store), "and the lock is free again"


async def test_writer_waits_for_the_transaction_and_goes_on(
    store: SqliteStore, claim: Claim, trace: Trace, open_transaction: SqliteTransaction
) -> None:
    trace.steps.clear()
    adding = asyncio.create_task(store.add([make_job()]))
    await asyncio.sleep(0)

    await open_transaction.commit(_end(claim))
    [added] = await adding

    assert added.created
    assert trace.done.index("tx.commit") < trace.done.index("add.jobs")


@pytest.mark.parametrize("ending", ["rollback", "timeout", "refused"])
async def test_writer_goes_on_however_the_transaction_ends(
    store: SqliteStore, claim: Claim, ending: str
) -> None:
    await settle(store, claim, LOST)
    transaction = await store.begin(within=SHORT if ending == "timeout" else LONG)
    adding = asyncio.create_task(store.add([make_job()]))

    if ending == "rollback":
        await transaction.rollback()
    elif ending == "refused":
        assert not await transaction.commit(_end(claim))

    [added] = await adding
    assert added.created


async def test_reading_goes_on_while_a_transaction_is_open(
    store: SqliteStore, claim: Claim, open_transaction: SqliteTransaction
) -> None:
    open_transaction.connection.execute(INVOICE)

    assert (await job_of(store, claim.id)).state is State.RUNNING
    assert dict(await store.counts()) == {("default", State.RUNNING): 1}


async def test_second_transaction_waits_for_the_first(
    store: SqliteStore, open_transaction: SqliteTransaction
) -> None:
    second = asyncio.create_task(store.begin(within=LONG))
    await asyncio.sleep(0)
    waited = not second.done()

    await open_transaction.rollback()

    assert waited
    await (await second).rollback()


async def test_second_transaction_gives_up_in_the_end_and_says_why(path: Path) -> None:
    async with opened(path, busy=0.1) as store:
        first = await store.begin(within=LONG)

        with pytest.raises(StoreBusy, match="another transaction of this process") as busy:
            await store.begin(within=LONG)

        await first.rollback()
        assert str(path) in str(busy.value)
        await (await store.begin(within=LONG)).rollback()


async def test_enqueue_can_be_part_of_the_transaction(
    store: SqliteStore, claim: Claim, open_transaction: SqliteTransaction
) -> None:
    following = make_job()

    [added] = store.add_within(open_transaction.connection, [following])
    await open_transaction.commit(_end(claim))

    assert added.created
    assert (await job_of(store, following.id)).state is State.QUEUED


@pytest.mark.parametrize("text", [str, bytes, bytearray])
@pytest.mark.parametrize("row", [None, sqlite3.Row, lambda _, row: {"row": row}])
async def test_whatever_the_handler_sets_on_its_connection_the_finish_is_written(
    claim: Claim, open_transaction: SqliteTransaction, text: Any, row: Any
) -> None:
    open_transaction.connection.text_factory = text
    open_transaction.connection.row_factory = row
    open_transaction.connection.isolation_level = "DEFERRED"

    assert await open_transaction.commit(_end(claim))


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
async def test_handler_that_ends_the_transaction_by_itself_is_told(
    store: SqliteStore, claim: Claim, open_transaction: SqliteTransaction, statement: str
) -> None:
    open_transaction.connection.execute(INVOICE)
    open_transaction.connection.execute(statement)

    with pytest.raises(HoldfastError):
        await open_transaction.commit(_end(claim))

    assert (await job_of(store, claim.id)).state is State.RUNNING, "the finish was not written"


async def test_transaction_ended_by_its_owner_is_not_called_late(
    claim: Claim, open_transaction: SqliteTransaction
) -> None:
    await open_transaction.rollback()

    with pytest.raises(HoldfastError) as over:
        await open_transaction.commit(_end(claim))

    assert not isinstance(over.value, TransactionTimeout)


async def test_finish_that_cannot_be_kept_takes_the_effect_with_it(
    store: SqliteStore, path: Path, claim: Claim, open_transaction: SqliteTransaction
) -> None:
    open_transaction.connection.execute(INVOICE)
    [change] = _end(claim)
    unkeepable = Change(change.job_id, change.token, change.move, result="no json")

    with pytest.raises(OperatorError):
        await open_transaction.commit([unkeepable])

    assert _effects(path) == 0
    assert await settle(store, claim, SUCCEEDED)


async def test_no_timer_is_left_when_a_transaction_is_over(
    store: SqliteStore, claim: Claim
) -> None:
    before = threading.active_count()

    transaction = await store.begin(within=LONG)
    await transaction.commit(_end(claim))
    await asyncio.to_thread(transaction._timer.join, PATIENCE)

    assert not transaction._timer.is_alive()
    assert threading.active_count() <= before + 3  # the threads that begin, commit and wait

"""`begin`: what its time allows, and who waits for whom."""

import asyncio
import sqlite3
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from outlast.core.decide import Change, decide
from outlast.core.run import Claim
from outlast.core.state import State
from outlast.errors import OutlastError, StoreBusy, TransactionTimeout
from outlast.store.sqlite.handler_transaction import SqliteTransaction
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import (
    LOST,
    SUCCEEDED,
    job_of,
    make_job,
    new_id,
    put,
    settle,
)
from support.crash.sqlite_target import dump

from .sqlite_helpers import PATIENCE, Trace, opened

LONG = timedelta(seconds=PATIENCE)
SHORT = timedelta(milliseconds=50)
LATE = (sqlite3.Error, TransactionTimeout)
"""What a handler can meet whose time is over; on a busy machine that may be at once."""
INVOICE = "INSERT INTO effects VALUES ('invoice')"


def _end(claim: Claim) -> list[Change]:
    return [decide(claim, SUCCEEDED, new_id=new_id)]


def _effects(path: Path) -> int:
    return len(dump(path)["effects"])


async def _expired(transaction: SqliteTransaction) -> None:
    """Wait until its time is over."""
    await asyncio.to_thread(transaction._timer.join, PATIENCE)


async def test_transaction_that_takes_too_long_is_rolled_back_and_says_so(
    store: SqliteStore, path: Path, claim: Claim
) -> None:
    transaction = await store.begin(within=SHORT)
    with suppress(*LATE):
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

    with pytest.raises(LATE):
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
        with pytest.raises(LATE):  # something a handler can expect, no MemoryError
            await asyncio.to_thread(transaction.connection.execute, endless)

    assert _effects(path) == 0
    assert await put(store), "and the lock is free again"


async def test_writer_waits_for_the_transaction_and_goes_on(
    store: SqliteStore, claim: Claim, trace: Trace, transaction: SqliteTransaction
) -> None:
    trace.steps.clear()
    adding = asyncio.create_task(store.add([make_job()]))
    await asyncio.sleep(0)

    await transaction.commit(_end(claim))
    [added] = await adding

    assert added.created
    added_at = next(n for n, name in enumerate(trace.done) if name.startswith("add."))
    assert trace.done.index("unit_of_work.commit") < added_at


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
    store: SqliteStore, claim: Claim, transaction: SqliteTransaction
) -> None:
    transaction.connection.execute(INVOICE)

    assert (await job_of(store, claim.id)).state is State.RUNNING
    assert dict(await store.counts()) == {("default", State.RUNNING): 1}


async def test_second_transaction_waits_for_the_first(
    store: SqliteStore, transaction: SqliteTransaction
) -> None:
    second = asyncio.create_task(store.begin(within=LONG))
    await asyncio.sleep(0)
    waited = not second.done()

    await transaction.rollback()

    assert waited
    await (await second).rollback()


async def test_second_transaction_gives_up_in_the_end_and_says_why(path: Path) -> None:
    async with opened(path, busy=0.1) as store:
        first = await store.begin(within=LONG)

        with pytest.raises(StoreBusy, match="other transactions") as busy:
            await store.begin(within=LONG)

        await first.rollback()
        assert str(path) in str(busy.value)
        await (await store.begin(within=LONG)).rollback()


async def test_transaction_ended_by_its_owner_is_not_called_late(
    claim: Claim, transaction: SqliteTransaction
) -> None:
    await transaction.rollback()

    with pytest.raises(OutlastError) as over:
        await transaction.commit(_end(claim))

    assert not isinstance(over.value, TransactionTimeout)


async def test_no_timer_is_left_when_a_transaction_is_over(
    store: SqliteStore, claim: Claim
) -> None:
    transaction = await store.begin(within=LONG)

    await transaction.commit(_end(claim))

    await asyncio.to_thread(transaction._timer.join, PATIENCE / 2)
    assert not transaction._timer.is_alive()

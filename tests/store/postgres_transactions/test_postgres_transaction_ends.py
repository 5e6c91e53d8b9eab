"""Transactions on PostgreSQL whose time is over, or whose connection is cut."""

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta

import asyncpg
import psycopg
import pytest

from outlast.core.run import Claim
from outlast.core.state import State
from outlast.errors import OutlastError, RunError, TransactionTimeout
from outlast.store.postgres.handler_transaction import PostgresTransaction
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import (
    FAILED,
    SUCCEEDED,
    job_of,
    make_job,
    settle,
    started,
)

from .transaction_helpers import INVOICE, LONG, Ask, effects, left, success_of

pytestmark = pytest.mark.parametrize("blocking", [False, True], ids=["awaited", "blocking"])

SHORT = timedelta(milliseconds=80)
LATE = (RunError, asyncpg.PostgresError, asyncpg.InterfaceError, psycopg.Error, OSError)
"""What a handler can meet whose time is over; on a busy machine that may be at once."""


async def expired(transaction: PostgresTransaction) -> None:
    """Wait until its time is over, and the server has ended it."""
    async with asyncio.timeout(120):
        await transaction.expired.wait()
        assert transaction._ending is not None
        await transaction._ending


async def test_transaction_that_takes_too_long_is_rolled_back_and_says_so(
    store: PostgresStore, outside: asyncpg.Connection, claim: Claim, blocking: bool, ask: Ask
) -> None:
    transaction = await store.begin(within=SHORT, blocking=blocking)
    with suppress(*LATE):
        await ask(transaction.connection, INVOICE)
    await expired(transaction)

    with pytest.raises((RunError, asyncpg.InterfaceError, psycopg.Error)):
        await ask(transaction.connection, INVOICE)
    with pytest.raises(TransactionTimeout, match=r"0\.08 s"):
        transaction.check()
    with pytest.raises(TransactionTimeout, match="do slow work outside it"):
        await transaction.commit(success_of(claim))

    assert await effects(outside) == 0
    assert (await job_of(store, claim.id)).state is State.RUNNING
    assert await left(outside) == 0


async def test_statement_under_way_when_the_time_is_over_is_ended(
    store: PostgresStore, outside: asyncpg.Connection, blocking: bool, ask: Ask
) -> None:
    transaction = await store.begin(within=SHORT, blocking=blocking)
    with suppress(*LATE):
        await ask(transaction.connection, "LOCK TABLE effects")

    with pytest.raises(LATE):
        await ask(transaction.connection, "SELECT pg_sleep(240)")

    await expired(transaction)
    assert await asyncio.wait_for(outside.execute(INVOICE), 120), "and its locks are free"
    assert await left(outside) == 0


async def test_late_commit_of_a_busy_loop_is_late_all_the_same(
    store: PostgresStore, outside: asyncpg.Connection, claim: Claim, blocking: bool, ask: Ask
) -> None:
    transaction = await store.begin(within=SHORT, blocking=blocking)
    with suppress(*LATE):
        await ask(transaction.connection, INVOICE)
    threading.Event().wait(0.1)  # as a handler would that blocks the loop

    with pytest.raises(TransactionTimeout):
        await transaction.commit(success_of(claim))

    assert await effects(outside) == 0


async def test_transaction_ended_by_its_owner_is_not_called_late(
    claim: Claim, transaction: PostgresTransaction
) -> None:
    await transaction.rollback()

    with pytest.raises(OutlastError) as over:
        await transaction.commit(success_of(claim))

    assert not isinstance(over.value, TransactionTimeout)


async def test_several_transactions_do_not_wait_for_each_other(
    store: PostgresStore, outside: asyncpg.Connection, claim: Claim, blocking: bool, ask: Ask
) -> None:
    other = await started(store)
    first = await store.begin(within=LONG, blocking=blocking)
    second = await store.begin(within=LONG, blocking=blocking)
    await ask(first.connection, INVOICE)
    await ask(second.connection, INVOICE)

    assert await second.commit(success_of(claim))
    assert await first.commit(success_of(other))
    assert await effects(outside) == 2


@pytest.mark.parametrize(
    "place",
    ["handler_transaction.restore", "apply", "unit_of_work.commit"],
    ids=["before", "within", "at the commit"],
)
async def test_connection_cut_in_between_leaves_both_or_neither(
    own_url: str, store: PostgresStore, outside: asyncpg.Connection, blocking: bool, place: str
) -> None:
    claim = await started(store)
    cut: list[int] = []

    def probe(name: str, is_done: bool) -> None:
        if cut and name.startswith(place) and not is_done:
            pid = cut.pop()
            with psycopg.connect(own_url, autocommit=True) as killer:
                killer.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    mine = PostgresStore(own_url, probe=probe)
    await mine.open()
    transaction = await mine.begin(within=LONG, blocking=blocking)
    if blocking:
        transaction.connection.execute(INVOICE)
    else:
        await transaction.connection.execute(INVOICE)
    cut.append(transaction._pid)

    with pytest.raises(OutlastError):
        await transaction.commit(success_of(claim))

    assert not cut, "it was cut"
    assert await effects(outside) == 0
    assert await settle(store, claim, SUCCEEDED)
    await mine.close()


async def test_connection_cut_after_the_commit_has_left_both(
    own_url: str, store: PostgresStore, outside: asyncpg.Connection, blocking: bool
) -> None:
    claim = await started(store)
    cut: list[int] = []

    def probe(name: str, is_done: bool) -> None:
        if cut and name == "unit_of_work.commit" and is_done:
            cut.pop()
            raise ConnectionResetError("the answer was lost")

    mine = PostgresStore(own_url, probe=probe)
    await mine.open()
    transaction = await mine.begin(within=LONG, blocking=blocking)
    await mine.add_within(transaction.connection, [following := make_job()])
    cut.append(1)

    assert await transaction.commit(success_of(claim)), "the outcome is looked up"

    assert (await job_of(store, claim.id)).state is State.SUCCEEDED
    assert (await job_of(store, following.id)).state is State.QUEUED
    assert not await settle(store, claim, FAILED), "what the worker then writes is refused"
    await mine.close()

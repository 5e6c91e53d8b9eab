"""`begin` on PostgreSQL: effects and finish together, or neither, for async and thread handlers."""

from contextlib import suppress
from uuid import uuid4

import asyncpg
import psycopg
import pytest

from outlast.core.decide import Change
from outlast.core.run import Claim
from outlast.core.state import State
from outlast.errors import OutlastError, RunError
from outlast.store.postgres.handler_transaction import PostgresTransaction
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import (
    FAILED,
    LOST,
    SUCCEEDED,
    job_of,
    make_job,
    settle,
    started,
)

from .transaction_helpers import INVOICE, LONG, Ask, effects, left, success_of

pytestmark = pytest.mark.parametrize("blocking", [False, True], ids=["awaited", "blocking"])


async def test_effect_and_finish_are_committed_together(
    store: PostgresStore,
    outside: asyncpg.Connection,
    claim: Claim,
    transaction: PostgresTransaction,
    ask: Ask,
) -> None:
    await ask(transaction.connection, INVOICE)
    before = await effects(outside)

    committed = await transaction.commit(success_of(claim))

    assert committed
    assert (before, await effects(outside)) == (0, 1)
    assert (await job_of(store, claim.id)).state is State.SUCCEEDED
    assert await outside.fetchval("SELECT count(*) FROM outlast.open_handler_transactions") == 0
    assert await left(outside) == 0


async def test_rollback_undoes_the_effect_and_leaves_the_run_open(
    store: PostgresStore,
    outside: asyncpg.Connection,
    claim: Claim,
    transaction: PostgresTransaction,
    ask: Ask,
) -> None:
    await ask(transaction.connection, INVOICE)

    await transaction.rollback()
    await transaction.rollback()

    assert await effects(outside) == 0
    assert await settle(store, claim, SUCCEEDED)
    assert await left(outside) == 0


async def test_refused_finish_takes_the_effect_with_it(
    store: PostgresStore, outside: asyncpg.Connection, claim: Claim, blocking: bool, ask: Ask
) -> None:
    await settle(store, claim, LOST)
    transaction = await store.begin(within=LONG, blocking=blocking)
    await ask(transaction.connection, INVOICE)

    committed = await transaction.commit(success_of(claim))

    assert not committed
    assert await effects(outside) == 0
    assert (await job_of(store, claim.id)).state is State.QUEUED


async def test_one_refused_change_of_several_takes_all_with_it(
    store: PostgresStore, claim: Claim, blocking: bool
) -> None:
    stale = await started(store)
    await settle(store, stale, FAILED)
    transaction = await store.begin(within=LONG, blocking=blocking)

    committed = await transaction.commit([*success_of(claim), *success_of(stale)])

    assert not committed
    assert (await job_of(store, claim.id)).state is State.RUNNING


async def test_finish_that_cannot_be_kept_takes_the_effect_with_it(
    store: PostgresStore,
    outside: asyncpg.Connection,
    claim: Claim,
    transaction: PostgresTransaction,
    ask: Ask,
) -> None:
    await ask(transaction.connection, INVOICE)
    [change] = success_of(claim)
    unkeepable = Change(change.job_id, change.token, change.move, result="no json")

    try:
        committed = await transaction.commit([unkeepable])
    except OutlastError:
        committed = False

    assert not committed
    assert await effects(outside) == 0
    assert await settle(store, claim, SUCCEEDED)


async def test_enqueue_can_be_part_of_the_transaction(
    store: PostgresStore, claim: Claim, transaction: PostgresTransaction
) -> None:
    following = make_job()

    [added] = await store.add_within(transaction.connection, [following])
    before = await store.get([following.id])
    await transaction.commit(success_of(claim))

    assert (added.created, before) == (True, [None])
    assert (await job_of(store, following.id)).state is State.QUEUED


SET_UP = [
    "SET LOCAL search_path = pg_temp",
    "SET LOCAL lock_timeout = '1ms'",
    "SET LOCAL enable_indexscan = off",
    "SET LOCAL session_replication_role = 'replica'",
    "SAVEPOINT mine",
]


async def test_whatever_the_handler_sets_on_its_connection_the_finish_is_written(
    store: PostgresStore, claim: Claim, transaction: PostgresTransaction, ask: Ask
) -> None:
    for setting in SET_UP:
        await ask(transaction.connection, setting)

    assert await transaction.commit(success_of(claim))
    assert (await job_of(store, claim.id)).state is State.SUCCEEDED


async def test_role_that_the_handler_took_does_not_finish_its_run(
    store: PostgresStore,
    outside: asyncpg.Connection,
    claim: Claim,
    transaction: PostgresTransaction,
    ask: Ask,
) -> None:
    role = f"clerk_{uuid4().hex}"  # a role is of the whole server
    await outside.execute(f"CREATE ROLE {role}; GRANT INSERT ON effects TO {role}")
    await ask(transaction.connection, f"SET LOCAL ROLE {role}")
    await ask(transaction.connection, INVOICE)

    assert await transaction.commit(success_of(claim))

    assert await effects(outside) == 1
    await outside.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


# Who ends it but us.


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "ABORT"])
async def test_handler_that_ends_the_transaction_by_itself_is_told_and_commits_nothing(
    store: PostgresStore,
    outside: asyncpg.Connection,
    claim: Claim,
    transaction: PostgresTransaction,
    ask: Ask,
    statement: str,
) -> None:
    await ask(transaction.connection, INVOICE)
    with suppress(asyncpg.PostgresError, psycopg.Error):
        await ask(transaction.connection, statement)

    with pytest.raises(RunError, match=r"ended run\.transaction\(\) itself"):
        await transaction.commit(success_of(claim))

    assert await effects(outside) == 0
    assert (await job_of(store, claim.id)).state is State.RUNNING, "the finish was not written"


async def test_no_statement_gets_through_once_the_transaction_was_ended_by_hand(
    outside: asyncpg.Connection, transaction: PostgresTransaction, ask: Ask
) -> None:
    await ask(transaction.connection, "ROLLBACK")

    for _ in range(3):
        with pytest.raises((RunError, asyncpg.InterfaceError)):
            await ask(transaction.connection, INVOICE)

    assert await effects(outside) == 0


async def test_transaction_begun_anew_by_hand_is_not_taken_for_ours(
    outside: asyncpg.Connection, claim: Claim, transaction: PostgresTransaction, ask: Ask
) -> None:
    await ask(transaction.connection, "ROLLBACK AND CHAIN")
    await ask(transaction.connection, INVOICE)

    with pytest.raises(RunError, match=r"ended run\.transaction\(\) itself"):
        await transaction.commit(success_of(claim))

    assert await effects(outside) == 0


async def test_methods_that_would_end_it_are_refused(
    claim: Claim, transaction: PostgresTransaction, blocking: bool
) -> None:
    connection = transaction.connection
    if blocking:
        for end in (connection.commit, connection.rollback, connection.close, connection.__enter__):
            with pytest.raises(RunError, match="leave commit, rollback and close to Outlast"):
                end()
    else:
        for end in (connection.close, connection.reset):
            with pytest.raises(RunError, match="leave commit, rollback and close to Outlast"):
                await end()

    with pytest.raises(RunError):
        await transaction.commit(success_of(claim))


async def test_statement_that_failed_undoes_all_and_says_what_to_do(
    store: PostgresStore,
    outside: asyncpg.Connection,
    claim: Claim,
    transaction: PostgresTransaction,
    ask: Ask,
) -> None:
    await ask(transaction.connection, INVOICE)
    with suppress(asyncpg.PostgresError, psycopg.Error):
        await ask(transaction.connection, "SELECT * FROM nowhere")

    with pytest.raises(RunError, match=r"statement of the handler failed .* savepoint"):
        await transaction.commit(success_of(claim))

    assert await effects(outside) == 0
    assert await settle(store, claim, SUCCEEDED)


async def test_savepoints_of_the_handler_work_as_ever(
    outside: asyncpg.Connection, claim: Claim, transaction: PostgresTransaction, blocking: bool
) -> None:
    connection = transaction.connection
    if blocking:
        connection.execute(INVOICE)
        with suppress(psycopg.Error), connection.transaction():
            connection.execute("SELECT * FROM nowhere")
    else:
        await connection.execute(INVOICE)
        with suppress(asyncpg.PostgresError):
            async with connection.transaction():
                await connection.execute("SELECT * FROM nowhere")

    assert await transaction.commit(success_of(claim))
    assert await effects(outside) == 1


async def test_deferred_constraint_of_the_handler_s_own_fails_its_commit(
    store: PostgresStore,
    outside: asyncpg.Connection,
    claim: Claim,
    transaction: PostgresTransaction,
    ask: Ask,
) -> None:
    await outside.execute(
        "DROP TABLE IF EXISTS owed; DROP TABLE IF EXISTS debtors; "
        "CREATE TABLE debtors (id integer PRIMARY KEY); "
        "CREATE TABLE owed (id integer REFERENCES debtors DEFERRABLE INITIALLY DEFERRED)"
    )
    await ask(transaction.connection, "INSERT INTO owed VALUES (1)")

    with pytest.raises(RunError, match=r"could not be committed: .*owed"):
        await transaction.commit(success_of(claim))

    assert (await job_of(store, claim.id)).state is State.RUNNING

"""`begin` on PostgreSQL: effects and finish together, or neither, for async and thread handlers."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest

from outlast.core.decide import Change, decide
from outlast.core.run import Claim
from outlast.core.state import State
from outlast.errors import OutlastError, RunError, TransactionTimeout
from outlast.store.postgres.handler_transaction import PostgresTransaction
from outlast.store.postgres.store import PostgresStore
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
from outlast.testing.servers.postgres import PostgresServer
from support.corruption.postgres import empty

LONG = timedelta(seconds=120)
SHORT = timedelta(milliseconds=80)
LATE = (RunError, asyncpg.PostgresError, asyncpg.InterfaceError, psycopg.Error, OSError)
"""What a handler can meet whose time is over; on a busy machine that may be at once."""
INVOICE = "INSERT INTO effects VALUES ('invoice')"

pytestmark = pytest.mark.parametrize("blocking", [False, True], ids=["awaited", "blocking"])

Ask = Callable[..., Awaitable[Any]]
"""Run a statement on a connection as its handler would: awaited, or in a thread."""


@pytest.fixture(scope="module")
def own_url(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.new_database()
    yield url
    postgres.drop_database(url.rpartition("/")[2])


@pytest.fixture
async def store(own_url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(own_url)
    await opened.open()
    await empty(opened.address)
    yield opened
    await opened.close()


@pytest.fixture
async def outside(own_url: str, store: PostgresStore) -> AsyncIterator[asyncpg.Connection]:
    """Somebody else, who sees what is committed; and a table for effects."""
    connection = await asyncpg.connect(own_url)
    await connection.execute("DROP TABLE IF EXISTS effects; CREATE TABLE effects (what text)")
    yield connection
    await connection.close()


@pytest.fixture
async def claim(store: PostgresStore, outside: asyncpg.Connection) -> Claim:
    return await started(store)


@pytest.fixture
async def transaction(
    store: PostgresStore, claim: Claim, blocking: bool
) -> AsyncIterator[PostgresTransaction]:
    begun = await store.begin(within=LONG, blocking=blocking)
    yield begun
    await begun.rollback()


@pytest.fixture
def ask(blocking: bool) -> Ask:
    async def asked(connection: Any, sql: str) -> Any:
        if blocking:
            return await asyncio.to_thread(connection.execute, sql)
        return await connection.execute(sql)

    return asked


def _end(claim: Claim) -> list[Change]:
    return [decide(claim, SUCCEEDED, new_id=new_id)]


async def _effects(outside: asyncpg.Connection) -> int:
    number: int = await outside.fetchval("SELECT count(*) FROM effects")
    return number


async def _left(outside: asyncpg.Connection) -> int:
    """How many connections of handlers the server still has, once they have had time to go."""
    for _ in range(12_000):
        number: int = await outside.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outlast handler' "
            "AND datname = current_database()"
        )
        if number == 0:
            break
        await asyncio.sleep(0.01)
    return number


async def test_effect_and_finish_are_committed_together(
    store: PostgresStore,
    outside: asyncpg.Connection,
    claim: Claim,
    transaction: PostgresTransaction,
    ask: Ask,
) -> None:
    await ask(transaction.connection, INVOICE)
    before = await _effects(outside)

    committed = await transaction.commit(_end(claim))

    assert committed
    assert (before, await _effects(outside)) == (0, 1)
    assert (await job_of(store, claim.id)).state is State.SUCCEEDED
    assert await outside.fetchval("SELECT count(*) FROM outlast.open_handler_transactions") == 0
    assert await _left(outside) == 0


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

    assert await _effects(outside) == 0
    assert await settle(store, claim, SUCCEEDED)
    assert await _left(outside) == 0


async def test_refused_finish_takes_the_effect_with_it(
    store: PostgresStore, outside: asyncpg.Connection, claim: Claim, blocking: bool, ask: Ask
) -> None:
    await settle(store, claim, LOST)
    transaction = await store.begin(within=LONG, blocking=blocking)
    await ask(transaction.connection, INVOICE)

    committed = await transaction.commit(_end(claim))

    assert not committed
    assert await _effects(outside) == 0
    assert (await job_of(store, claim.id)).state is State.QUEUED


async def test_one_refused_change_of_several_takes_all_with_it(
    store: PostgresStore, claim: Claim, blocking: bool
) -> None:
    stale = await started(store)
    await settle(store, stale, FAILED)
    transaction = await store.begin(within=LONG, blocking=blocking)

    committed = await transaction.commit([*_end(claim), *_end(stale)])

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
    [change] = _end(claim)
    unkeepable = Change(change.job_id, change.token, change.move, result="no json")

    try:
        committed = await transaction.commit([unkeepable])
    except OutlastError:
        committed = False

    assert not committed
    assert await _effects(outside) == 0
    assert await settle(store, claim, SUCCEEDED)


async def test_enqueue_can_be_part_of_the_transaction(
    store: PostgresStore, claim: Claim, transaction: PostgresTransaction
) -> None:
    following = make_job()

    [added] = await store.add_within(transaction.connection, [following])
    before = await store.get([following.id])
    await transaction.commit(_end(claim))

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

    assert await transaction.commit(_end(claim))
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

    assert await transaction.commit(_end(claim))

    assert await _effects(outside) == 1
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
        await transaction.commit(_end(claim))

    assert await _effects(outside) == 0
    assert (await job_of(store, claim.id)).state is State.RUNNING, "the finish was not written"


async def test_no_statement_gets_through_once_the_transaction_was_ended_by_hand(
    outside: asyncpg.Connection, transaction: PostgresTransaction, ask: Ask
) -> None:
    await ask(transaction.connection, "ROLLBACK")

    for _ in range(3):
        with pytest.raises((RunError, asyncpg.InterfaceError)):
            await ask(transaction.connection, INVOICE)

    assert await _effects(outside) == 0


async def test_transaction_begun_anew_by_hand_is_not_taken_for_ours(
    outside: asyncpg.Connection, claim: Claim, transaction: PostgresTransaction, ask: Ask
) -> None:
    await ask(transaction.connection, "ROLLBACK AND CHAIN")
    await ask(transaction.connection, INVOICE)

    with pytest.raises(RunError, match=r"ended run\.transaction\(\) itself"):
        await transaction.commit(_end(claim))

    assert await _effects(outside) == 0


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
        await transaction.commit(_end(claim))


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
        await transaction.commit(_end(claim))

    assert await _effects(outside) == 0
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

    assert await transaction.commit(_end(claim))
    assert await _effects(outside) == 1


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
        await transaction.commit(_end(claim))

    assert (await job_of(store, claim.id)).state is State.RUNNING


# Time.


async def _expired(transaction: PostgresTransaction) -> None:
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
    await _expired(transaction)

    with pytest.raises((RunError, asyncpg.InterfaceError, psycopg.Error)):
        await ask(transaction.connection, INVOICE)
    with pytest.raises(TransactionTimeout, match=r"0\.08 s"):
        transaction.check()
    with pytest.raises(TransactionTimeout, match="do slow work outside it"):
        await transaction.commit(_end(claim))

    assert await _effects(outside) == 0
    assert (await job_of(store, claim.id)).state is State.RUNNING
    assert await _left(outside) == 0


async def test_statement_under_way_when_the_time_is_over_is_ended(
    store: PostgresStore, outside: asyncpg.Connection, blocking: bool, ask: Ask
) -> None:
    transaction = await store.begin(within=SHORT, blocking=blocking)
    with suppress(*LATE):
        await ask(transaction.connection, "LOCK TABLE effects")

    with pytest.raises(LATE):
        await ask(transaction.connection, "SELECT pg_sleep(240)")

    await _expired(transaction)
    assert await asyncio.wait_for(outside.execute(INVOICE), 120), "and its locks are free"
    assert await _left(outside) == 0


async def test_late_commit_of_a_busy_loop_is_late_all_the_same(
    store: PostgresStore, outside: asyncpg.Connection, claim: Claim, blocking: bool, ask: Ask
) -> None:
    transaction = await store.begin(within=SHORT, blocking=blocking)
    with suppress(*LATE):
        await ask(transaction.connection, INVOICE)
    threading.Event().wait(0.1)  # as a handler would that blocks the loop

    with pytest.raises(TransactionTimeout):
        await transaction.commit(_end(claim))

    assert await _effects(outside) == 0


async def test_transaction_ended_by_its_owner_is_not_called_late(
    claim: Claim, transaction: PostgresTransaction
) -> None:
    await transaction.rollback()

    with pytest.raises(OutlastError) as over:
        await transaction.commit(_end(claim))

    assert not isinstance(over.value, TransactionTimeout)


async def test_several_transactions_do_not_wait_for_each_other(
    store: PostgresStore, outside: asyncpg.Connection, claim: Claim, blocking: bool, ask: Ask
) -> None:
    other = await started(store)
    first = await store.begin(within=LONG, blocking=blocking)
    second = await store.begin(within=LONG, blocking=blocking)
    await ask(first.connection, INVOICE)
    await ask(second.connection, INVOICE)

    assert await second.commit(_end(claim))
    assert await first.commit(_end(other))
    assert await _effects(outside) == 2


# Killed in between.


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
        await transaction.commit(_end(claim))

    assert not cut, "it was cut"
    assert await _effects(outside) == 0
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

    with pytest.raises(OutlastError):
        await transaction.commit(_end(claim))

    assert (await job_of(store, claim.id)).state is State.SUCCEEDED
    assert (await job_of(store, following.id)).state is State.QUEUED
    assert not await settle(store, claim, FAILED), "what the worker then writes is refused"
    await mine.close()

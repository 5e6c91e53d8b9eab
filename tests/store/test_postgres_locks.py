"""Locks on PostgreSQL: they keep no vacuum back, outlive a broken connection, and say when lost."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from outlast.store.postgres import locks
from outlast.store.postgres.locks import PostgresLock
from outlast.store.postgres.store import PostgresStore
from outlast.testing.servers.postgres import PostgresServer

from .sqlite_helpers import PATIENCE

ENDING = ("idle_in_transaction_session_timeout", "transaction_timeout", "statement_timeout")
"""Settings after whose time a server ends a session, a transaction or a statement."""


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    postgres = PostgresStore(postgres_url)
    await postgres.open()
    yield postgres
    await postgres.close()


@pytest.fixture
async def other(postgres_url: str, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """Another process's store, as far as the server can tell."""
    postgres = PostgresStore(postgres_url)
    await postgres.open()
    yield postgres
    await postgres.close()


@pytest.fixture
async def operator(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url.partition("?")[0])
    yield connection
    await connection.close()


async def until(is_so: Callable[[], bool]) -> None:
    """Soon; nothing tells that a lock was taken again."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 - on another thread
            await asyncio.sleep(0.01)


async def cut(operator: asyncpg.Connection, hold: PostgresLock) -> None:
    """Break the connection of a lock, at the server."""
    assert hold.session_key is not None
    patience = int(PATIENCE * 1000)
    assert await operator.fetchval(
        "SELECT pg_terminate_backend($1, $2)", hold.session_key[0], patience
    )


async def test_held_lock_keeps_no_vacuum_back(
    store: PostgresStore, operator: asyncpg.Connection
) -> None:
    hold = await store.acquire_lock("host-1")

    assert hold is not None
    assert hold.session_key is not None
    [found] = await operator.fetch(
        "SELECT state, backend_xmin, backend_xid FROM pg_stat_activity WHERE pid = $1",
        hold.session_key[0],
    )
    assert tuple(found) == ("idle in transaction", None, None)


@pytest.fixture
def hasty_url(postgres: PostgresServer) -> Iterator[str]:
    """A database of its own, where the server ends whoever is slow: others must not meet that."""
    url = postgres.new_database()
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ENDING:
            connection.execute(f"ALTER DATABASE {name} SET {setting} = '{int(PATIENCE)}s'".encode())
    yield url
    postgres.drop_database(name)


async def test_lock_outlives_the_timeouts_of_the_server(hasty_url: str) -> None:
    store = PostgresStore(hasty_url)
    await store.open()
    hold = await store.acquire_lock("host-1")
    assert hold is not None
    assert hold.session is not None

    ask = "SELECT current_setting($1)"
    for setting in ENDING:
        outside = await asyncpg.connect(hasty_url)
        usual = await outside.fetchval(ask, setting)
        await outside.close()
        asking = store._loop_thread.run(hold.session.connection.fetchval(ask, setting))
        assert (usual, await asyncio.wrap_future(asking)) == ("2min", "0"), setting
    await store.close()


async def test_lock_whose_connection_broke_is_taken_again(
    store: PostgresStore, other: PostgresStore, operator: asyncpg.Connection
) -> None:
    hold = await store.acquire_lock("host-1")
    assert hold is not None
    before = hold.session_key

    await cut(operator, hold)
    await until(lambda: hold.session is not None and hold.session_key != before)

    assert not hold.is_lost
    assert await other.acquire_lock("host-1") is None


async def test_lock_that_somebody_else_got_meanwhile_is_lost_and_says_so(
    store: PostgresStore,
    other: PostgresStore,
    operator: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hold = await store.acquire_lock("host-1")
    assert hold is not None
    monkeypatch.setattr(locks, "LOST_AFTER_S", 0.2)
    again: Callable[[PostgresLock], Any] = store._locks._reacquire
    gate = asyncio.Event()

    async def late(hold: PostgresLock) -> None:
        while not gate.is_set():  # noqa: ASYNC110 - of another loop than ours
            await asyncio.sleep(0.01)
        await again(hold)

    monkeypatch.setattr(store._locks, "_reacquire", late)
    with caplog.at_level(logging.ERROR):
        await cut(operator, hold)
        thief = await other.acquire_lock("host-1")
        assert thief is not None
        gate.set()
        await until(lambda: "lock lost, another process acquired it" in caplog.text)

    assert hold.is_lost
    assert "the lock host-1 is held by another process" in " ".join(await store.health_warnings())
    await hold.release()
    assert await other.acquire_lock("host-1") is None, (
        "releasing what was lost takes nothing from anybody"
    )


async def test_lock_that_was_released_is_not_taken_again(
    store: PostgresStore, other: PostgresStore, operator: asyncpg.Connection
) -> None:
    hold = await store.acquire_lock("host-1")
    assert hold is not None
    await cut(operator, hold)
    await hold.release()

    taken = await other.acquire_lock("host-1")

    assert taken is not None
    assert not hold.is_lost


async def test_cancelled_taking_leaves_nothing_held(
    store: PostgresStore, other: PostgresStore
) -> None:
    for _ in range(5):
        taking = asyncio.create_task(store.acquire_lock("host-1"))
        await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait([taking])

    async with asyncio.timeout(PATIENCE):
        while (held := await other.acquire_lock("host-1")) is None:  # noqa: ASYNC110 - of the server
            await asyncio.sleep(0.01)
    assert held is not None


async def test_taking_cancelled_just_before_its_end_leaves_nothing_held(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, taking = asyncio.get_running_loop(), list[asyncio.Task[object]]()

    async def give_up() -> None:
        taking[0].cancel()
        await asyncio.wait(taking)

    def probe(name: str, after: bool) -> None:
        if (name, after) == ("locks.drop_snapshot", False):
            asyncio.run_coroutine_threadsafe(give_up(), loop).result(PATIENCE)

    monkeypatch.setattr(store._locks, "_probe", probe)
    taking.append(asyncio.create_task(store.acquire_lock("host-1")))
    await asyncio.wait(taking)

    async with asyncio.timeout(PATIENCE):
        while await other.acquire_lock("host-1") is None:  # noqa: ASYNC110 - of the server
            await asyncio.sleep(0.01)
    assert taking[0].cancelled()


async def test_child_that_was_forked_keeps_no_lock(
    store: PostgresStore, other: PostgresStore
) -> None:
    hold = await store.acquire_lock("host-1")
    assert hold is not None
    alive, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(tell)
        os.read(alive, 1)  # until the parent is done with it
        os._exit(0)
    try:
        assert hold.session is not None
        hold.session.connection.terminate()  # as the death of this process would

        async with asyncio.timeout(PATIENCE):
            hold.is_wanted = False
            while (taken := await other.acquire_lock("host-1")) is None:  # noqa: ASYNC110 - the same
                await asyncio.sleep(0.01)
        assert taken is not None
    finally:
        os.close(tell)
        os.close(alive)
        os.waitpid(child, 0)  # noqa: ASYNC222 - it ends with its pipe


async def test_vacant_are_those_that_nobody_holds(
    store: PostgresStore, other: PostgresStore
) -> None:
    mine, theirs = await store.acquire_lock("mine"), await other.acquire_lock("theirs")

    assert await store.free_locks(["mine", "theirs", "free"]) == {"free"}
    assert mine is not None
    assert theirs is not None
    await theirs.release()
    assert await store.free_locks(["mine", "theirs"]) == {"theirs"}


async def test_lasting_locks_share_one_connection_and_are_each_held_alone(
    store: PostgresStore, other: PostgresStore
) -> None:
    one = await store.acquire_lock("one", lasting=True)
    two = await store.acquire_lock("two", shared=True, lasting=True)
    assert one is not None
    assert two is not None

    assert one.session is two.session
    assert await store.acquire_lock("one", lasting=True) is None
    assert await store.acquire_lock("one") is None
    assert await other.acquire_lock("one", lasting=True) is None
    assert await other.acquire_lock("two", lasting=True) is None
    shared = await other.acquire_lock("two", shared=True, lasting=True)
    assert shared is not None

    await one.release()
    await two.release()
    await shared.release()
    assert await other.acquire_lock("one", lasting=True) is not None
    assert await other.acquire_lock("two", lasting=True) is not None


async def test_lasting_locks_whose_connection_broke_are_all_taken_again(
    store: PostgresStore, other: PostgresStore, operator: asyncpg.Connection
) -> None:
    held = [await store.acquire_lock(name, lasting=True) for name in ("one", "two", "three")]
    locks_held = [lock for lock in held if lock is not None]
    before = locks_held[0].session_key

    await cut(operator, locks_held[0])
    await until(lambda: all(each.session and each.session_key != before for each in locks_held))

    assert len({each.session_key for each in locks_held}) == 1
    assert [await other.acquire_lock(each.name) for each in locks_held] == [None] * 3
    assert not any(each.is_lost for each in locks_held)

"""A network that falls silent is given up; a server that is slow is waited for."""

import asyncio
import socket
from collections.abc import AsyncIterator

import asyncpg
import pytest

from outlast.core.decide import succeed
from outlast.core.state import State
from outlast.errors import StoreUnavailable
from outlast.store.contract.jobs import Filter
from outlast.store.postgres import connection, statement_watch
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import (
    LEASE,
    MANY,
    job_of,
    make_job,
    put,
    started,
    take_many,
)
from outlast.testing.servers.postgres import PostgresServer
from support.servers.fault_proxy import FaultProxy

from .pg_network import database, opened, proxy
from .pg_waiting import until_somebody_waits

__all__ = ["database", "proxy"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements are checked soon."""
    monkeypatch.setattr(statement_watch, "CHECK_AFTER_S", 0.1)
    monkeypatch.setattr(statement_watch, "MIN_CHECK_S", 0.1)
    monkeypatch.setattr(statement_watch, "MIN_LIMIT_S", 1.0)


@pytest.fixture
async def store(
    postgres: PostgresServer, database: str, proxy: FaultProxy
) -> AsyncIterator[PostgresStore]:
    async with opened(postgres.url(database, port=proxy.port)) as behind:
        yield behind


async def test_a_server_that_hangs_is_given_up_when_the_wait_is_over(
    postgres: PostgresServer, database: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgres.url(database, port=proxy.port) + "?wait=1") as store:
        await put(store)
        proxy.pause()
        with monkeypatch.context() as impatient:
            impatient.setattr(connection, "CONNECT_TIMEOUT_S", 0.5)
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await store.add([make_job()])
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await store.find(Filter(), limit=MANY)
        proxy.resume()

        assert await put(store)


async def test_every_operation_goes_on_over_new_connections_when_the_open_ones_fall_silent(
    store: PostgresStore, proxy: FaultProxy
) -> None:
    running = [await started(store), await started(store, active_key="key")]
    await store.apply([succeed((await started(store)).job_id, 1, "1")])
    kept = await started(store)
    await store.renew([kept.lease], span=LEASE)
    await store.find(Filter(), limit=MANY)
    await store.pause("other", reason=None, span=None)
    assert proxy.silence() >= 6, "one for each purpose"

    renewed, job_id, found, claims, ended = await asyncio.gather(
        store.renew([kept.lease], span=LEASE),
        put(store, queue="later"),
        store.find(Filter(), limit=MANY),
        take_many(store),
        store.apply([succeed(claim.job_id, claim.token, "1") for claim in running]),
    )
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await store.resume("other")  # no operation of which a repetition is known to be safe

    assert [renewal.held for renewal in renewed] == [True]
    assert (await job_of(store, job_id)).state is State.QUEUED
    assert len(found) >= 3
    assert claims == []
    assert ended == [True, True]
    assert await store.resume("other")


async def test_what_a_silent_connection_had_locked_is_freed(
    store: PostgresStore, proxy: FaultProxy
) -> None:
    """It falls silent in the middle of a transaction, which the server would keep open."""
    claim = await started(store, active_key="key")
    silent = proxy.silence_at("FOR UPDATE")

    ended = await store.apply([succeed(claim.job_id, claim.token, "1")])

    assert silent.is_set()
    assert ended == [True]
    assert (await job_of(store, claim.id)).state is State.SUCCEEDED


async def test_a_statement_that_the_server_works_on_is_not_given_up(
    postgres: PostgresServer, database: str
) -> None:
    """It waits for a lock, for many checks."""
    seen: list[str] = []
    store = PostgresStore(
        postgres.url(database), probe=lambda name, is_done: None if is_done else seen.append(name)
    )
    await store.open()
    await put(store)
    operator = await asyncpg.connect(postgres.url(database))
    blocking = operator.transaction()
    await blocking.start()
    await operator.execute("LOCK TABLE outlast.jobs IN SHARE MODE")
    seen.clear()
    adding = asyncio.create_task(put(store))
    await until_somebody_waits(postgres.url(database))
    done, _ = await asyncio.wait([adding], timeout=1)
    await blocking.rollback()

    job_id = await adding

    assert not done
    assert len(seen) == len(set(seen)), "no statement was sent again"
    assert (await job_of(store, job_id)).state is State.QUEUED
    await operator.close()
    await store.close()


async def test_every_connection_notices_that_the_other_end_is_gone(store: PostgresStore) -> None:
    for purpose in ("lease", "add", "claim", "apply", "write", "read-0"):
        async with store._pool.connection(purpose).acquire() as runner:
            sock = connection.socket_of(runner.connection)
            at_the_server = await runner.connection.fetchval("SHOW tcp_user_timeout")
        options = {
            name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name, _ in connection.TCP_OPTIONS
        }

        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert options == dict(connection.TCP_OPTIONS)
        assert at_the_server == "25000"

"""Through a transaction pooler everything works but hearing, which is said."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from outlast.core.decide import succeed
from outlast.core.state import State
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.postgres.notify import listener
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import LEASE, MANY, job_of, put, take_many
from outlast.testing.servers.postgres import PostgresServer
from outlast.worker.supervisor.identity import identify
from outlast.worker.supervisor.options import WorkerOptions
from support.servers.transaction_pooler import TransactionPooler, transaction_pooler


@pytest.fixture
def pooler(postgres: PostgresServer) -> Iterator[TransactionPooler]:
    with transaction_pooler(postgres.port, size=4) as between:
        yield between


@pytest.fixture
async def store(
    postgres: PostgresServer, pooler: TransactionPooler
) -> AsyncIterator[PostgresStore]:
    name = postgres.new_database().rpartition("/")[2]
    through = PostgresStore(f"{postgres.url(name, port=pooler.port)}?pooler=true")
    await through.open()
    yield through
    await through.close()
    postgres.drop_database(name)


async def test_jobs_go_their_way_through_a_pooler(store: PostgresStore) -> None:
    await store.set_queue(Queue(name="narrow", concurrency=1))
    jobs = [await put(store) for _ in range(5)] + [await put(store, queue="narrow", active_key="k")]

    claims = await take_many(store) + await take_many(store, queue="narrow")
    renewed = await store.renew([claim.lease for claim in claims], span=LEASE)
    applied = await store.apply([succeed(claim.job_id, claim.token, "1") for claim in claims])

    assert [claim.id for claim in claims] == jobs
    assert [each.held for each in renewed] == [True] * 6
    assert applied == [True] * 6
    assert {(await job_of(store, job)).state for job in jobs} == {State.SUCCEEDED}
    assert len(await store.find(Filter(), limit=MANY)) == 6


async def test_locks_are_held_through_a_pooler(store: PostgresStore) -> None:
    hold = await store.acquire_lock("host-1")
    refused = await store.acquire_lock("host-1")
    assert hold is not None
    await hold.release()

    assert refused is None
    assert await store.acquire_lock("host-1") is not None


async def test_that_nothing_is_heard_is_a_concern(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "ROUNDTRIP_TIMEOUT_S", 0.3)

    assert listener.LISTEN_UNAVAILABLE in await store.health_warnings()


PINNED = """
    SELECT count(*) FROM pg_stat_activity
    WHERE state = 'idle in transaction' AND datname = current_database()
"""


@pytest.fixture
async def outside(
    postgres: PostgresServer, store: PostgresStore
) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres.url(store.address.dsn.rpartition("/")[2]))
    yield connection
    await connection.close()


async def test_the_identity_of_a_worker_pins_one_connection_of_the_pooler(
    store: PostgresStore, outside: asyncpg.Connection
) -> None:
    """Its pool has four: with one for each lock, nothing else would get one."""
    options = WorkerOptions(app="none:app", instance_id="one", topology="single")
    identity = await identify(store, options, "boot-1")
    others = [await store.acquire_lock(f"lasting-{n}", lasting=True) for n in range(3)]

    assert len(identity.locks) == 3
    assert all(others)
    assert await outside.fetchval(PINNED) == 1
    assert (await store.describe())["connections pinned by locks"] == "1"
    assert [claim.id for claim in await take_many(store)] == []
    job = await put(store)
    assert (await job_of(store, job)).state is State.QUEUED

    await identity.release()
    for lock in others:
        assert lock is not None
        await lock.release()
    assert await outside.fetchval(PINNED) == 0

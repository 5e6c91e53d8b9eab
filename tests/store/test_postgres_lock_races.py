"""Races that a lock of PostgreSQL decides: each is forced by holding the lock from outside."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from outlast.core.decide import succeed
from outlast.core.group import GroupMode, GroupState
from outlast.core.run import Claim
from outlast.store.contract.queues import Queue
from outlast.store.postgres.placeholders import statements
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import (
    LEASE,
    TYPE,
    make_holder,
    make_job,
    put,
    put_group,
    take,
)

from .pg_waiting import until_somebody_waits


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    postgres_store = PostgresStore(postgres_url)
    await postgres_store.open()
    yield postgres_store
    await postgres_store.close()


@pytest.fixture
async def other(postgres_url: str) -> AsyncIterator[PostgresStore]:
    """The store of another process, as far as the server can tell."""
    postgres_store = PostgresStore(postgres_url)
    await postgres_store.open()
    yield postgres_store
    await postgres_store.close()


@pytest.fixture
async def outside(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url.partition("?")[0])
    yield connection
    await connection.close()


async def _claim(store: PostgresStore) -> list[Claim]:
    return await store.claim(make_holder(), queue="default", types=[TYPE], limit=1, lease=LEASE)


async def test_pause_waits_for_claims_in_progress(
    store: PostgresStore, outside: asyncpg.Connection
) -> None:
    """After `pause` returned, no claim commits that did not know the pause."""
    claim = outside.transaction()
    await claim.start()
    table = f'"{store.address.schema}".open_runs'
    await outside.execute(f"DELETE FROM {table}")  # noqa: S608 - as a claim does: it writes there

    pausing = asyncio.create_task(store.pause("default", reason=None, span=None))
    await until_somebody_waits(store.address.dsn)

    assert not pausing.done()
    await claim.commit()
    await pausing


async def test_pause_waits_for_a_claim_that_has_read_the_gate_of_a_limited_queue(
    store: PostgresStore, outside: asyncpg.Connection
) -> None:
    """Such a claim holds the lock of its queue, and has opened no run yet."""
    claim = outside.transaction()
    await claim.start()
    lock = statements(store.address.schema)["queues.lock"].text
    await outside.execute(lock, ["default"])

    pausing = asyncio.create_task(store.pause("default", reason=None, span=None))
    await until_somebody_waits(store.address.dsn)

    assert not pausing.done()
    await claim.commit()
    await pausing


async def test_claim_that_waited_for_a_limited_queue_sees_its_pause(
    store: PostgresStore, other: PostgresStore, outside: asyncpg.Connection
) -> None:
    """The claim looked at the queue before the pause, and claims after it."""
    await store.set_queue(Queue(name="default", concurrency=1))
    await put(store)
    before = outside.transaction()
    await before.start()
    await outside.execute(statements(store.address.schema)["queues.lock"].text, ["default"])

    pausing = asyncio.create_task(other.pause("default", reason=None, span=None))
    await until_somebody_waits(store.address.dsn)
    claiming = asyncio.create_task(_claim(store))
    await until_somebody_waits(store.address.dsn, sessions=2)
    await before.rollback()
    await pausing

    assert await claiming == []


async def test_group_whose_last_member_ended_meanwhile_is_not_stopped(
    store: PostgresStore, other: PostgresStore, outside: asyncpg.Connection
) -> None:
    """A finished group stays finished: the stop looks at it after the end of the member."""
    group_id, _ = await put_group(store, make_job(), mode=GroupMode.SEQUENTIAL)
    claim = await take(store)
    before = outside.transaction()
    await before.start()
    table = f'"{store.address.schema}".groups'
    await outside.execute(f"SELECT 1 FROM {table} FOR UPDATE")  # noqa: S608 - a test's own schema

    ending = asyncio.create_task(store.apply([succeed(claim.job_id, claim.token, "1")]))
    await until_somebody_waits(store.address.dsn)
    stopping = asyncio.create_task(other.stop_group(group_id, reason="late"))
    await until_somebody_waits(store.address.dsn, sessions=2)
    await before.rollback()

    assert await ending == [True]
    assert not await stopping
    found = await store.group(group_id)
    assert found is not None
    assert found.state is GroupState.SUCCEEDED

"""A schema restored from the dump of another server, whose transaction numbers were higher."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import pytest

from outlast.core.event import EventKind
from outlast.errors import OperatorError
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import (
    FAILED,
    MANY,
    kinds,
    settle,
    started,
    take,
)
from outlast.testing.servers.postgres import PostgresServer
from support.postgres.shared_store import Settled

AHEAD = 1_000_000
"""Transactions that the other server had run more than this one."""


@dataclass(frozen=True)
class Restored:
    """A schema with one event of another server, and a connection to its database."""

    url: str
    last_event: int
    connection: asyncpg.Connection


@pytest.fixture
async def restored(postgres_url: str) -> AsyncIterator[Restored]:
    store = PostgresStore(postgres_url)
    await store.open()
    claim = await started(store, max_attempts=2)
    await settle(store, claim, FAILED)
    await store.close()
    connection = await asyncpg.connect(store.address.dsn)
    await connection.execute(f'SET search_path = "{store.address.schema}"')
    moved = "UPDATE events SET id = id + ($1::bigint << 24) RETURNING id"
    last = await connection.fetchval(moved, AHEAD)
    yield Restored(postgres_url, last, connection)
    await connection.close()


async def test_events_after_a_restore_follow_those_before_it(restored: Restored) -> None:
    store = Settled(restored.url)
    await store.open()

    claim = await take(store)
    await settle(store, claim, FAILED)

    assert await kinds(store, claim.id) == [EventKind.RETRY, EventKind.DEAD_LETTER]
    streamed = await store.stream(limit=MANY)
    assert [event.kind for event in streamed] == [EventKind.RETRY, EventKind.DEAD_LETTER]
    after = await store.stream(after=restored.last_event, limit=MANY)
    assert [event.kind for event in after] == [EventKind.DEAD_LETTER]
    await store.close()


async def test_opening_again_after_a_restore_changes_nothing(restored: Restored) -> None:
    epochs = []
    for _ in range(2):
        store = PostgresStore(restored.url)
        await store.open()
        await store.close()
        epochs.append(await restored.connection.fetchval("SELECT event_epoch()"))

    assert epochs[0] == epochs[1] > 0


@pytest.mark.xdist_group("roles")  # a role is of the whole server
async def test_role_that_does_not_own_the_schema_is_told_who_repairs_it(
    restored: Restored, postgres: PostgresServer
) -> None:
    connection, schema = restored.connection, PostgresStore(restored.url).address.schema
    await connection.execute(
        f"CREATE ROLE guest LOGIN PASSWORD 'x'; "
        f'GRANT USAGE ON SCHEMA "{schema}" TO guest; '
        f'GRANT ALL ON ALL TABLES IN SCHEMA "{schema}" TO guest; '
        f'GRANT ALL ON ALL SEQUENCES IN SCHEMA "{schema}" TO guest'
    )
    guest = PostgresStore(restored.url.replace(f"postgres:{postgres.password}", "guest:x"))
    try:
        with pytest.raises(OperatorError, match=r"restored from a dump.*outlast db migrate"):
            await guest.open()

        owner = PostgresStore(restored.url)
        await owner.open()
        await owner.close()
        await guest.open()
        await guest.close()
    finally:
        await connection.execute("DROP OWNED BY guest CASCADE; DROP ROLE guest")

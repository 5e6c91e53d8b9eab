"""One PostgreSQL database for each module: its store, a look at it, a run, its transaction."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from outlast.core.run import Claim
from outlast.store.postgres.handler_transaction import PostgresTransaction
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import started
from outlast.testing.servers.postgres import PostgresServer
from support.corruption.postgres import empty

from .transaction_helpers import LONG, Ask


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

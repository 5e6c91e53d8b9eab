"""One PostgreSQL database for each module: its store, a look at it, and the callers."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from outlast.store.postgres.store import PostgresStore
from outlast.testing.servers.postgres import PostgresServer
from store.pg_callers import CALLERS, Caller
from support.corruption.postgres import empty


@pytest.fixture(scope="module")
def own_url(postgres: PostgresServer) -> Iterator[str]:
    """One database for all tests of this module, which empty it first: making one takes longer."""
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
    """Somebody else, who sees what is committed; and a table of the application's."""
    connection = await asyncpg.connect(own_url)
    await connection.execute(
        "DROP TABLE IF EXISTS invoices; CREATE TABLE invoices (number integer)"
    )
    yield connection
    await connection.close()


@pytest.fixture(params=CALLERS.values(), ids=CALLERS)
async def caller(
    request: pytest.FixtureRequest, own_url: str, outside: asyncpg.Connection
) -> AsyncIterator[Caller]:
    async with request.param(own_url) as opened:
        yield opened

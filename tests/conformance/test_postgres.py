"""The PostgreSQL store keeps the contract, also when it outlives processes and is shared."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from outlast.core.ids import Ids
from outlast.store.postgres.store import PostgresStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import *  # noqa: F403 - the suite
from outlast.testing.conformance.broken import *  # noqa: F403 - what recovery repairs
from outlast.testing.conformance.durable import *  # noqa: F403 - capability DURABLE
from outlast.testing.conformance.refuted import *  # noqa: F403 - what verify finds
from outlast.testing.conformance.shared import *  # noqa: F403 - capability SHARED
from outlast.testing.conformance.shared_queues import *  # noqa: F403 - the same, of queues
from outlast.testing.conformance.shared_records import *  # noqa: F403 - same
from outlast.testing.conformance.shared_schedules import *  # noqa: F403 - same
from outlast.testing.postgres_clock import DatabaseClock
from outlast.testing.postgres_kept import Kept, kept_connections
from outlast.testing.postgres_settled import Settled
from outlast.testing.postgres_wreck import PostgresWrecker

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("connections"),
]

if TYPE_CHECKING:
    from outlast.testing.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def kept_url(postgres: "PostgresServer") -> Iterator[str]:
    """One schema for all tests of this module, which empty it first: making one takes longer."""
    url = postgres.new_database()
    yield url
    postgres.drop_database(url.rpartition("/")[2])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connections(kept_url: str) -> AsyncIterator[Kept]:
    async with kept_connections(kept_url) as kept:
        yield kept


@pytest_asyncio.fixture(loop_scope="module")
async def store(
    kept_url: str, connections: Kept, clock: FakeClock, ids: Ids
) -> AsyncIterator[PostgresStore]:
    postgres = Settled(kept_url, clock=DatabaseClock(clock), ids=ids)
    await postgres.open()
    await connections.empty()
    yield postgres
    await postgres.close()


@pytest.fixture
def wrecker(store: PostgresStore) -> PostgresWrecker:
    return PostgresWrecker(store.address)


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url

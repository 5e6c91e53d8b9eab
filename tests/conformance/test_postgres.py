"""The PostgreSQL store keeps the contract, also when it outlives processes and is shared."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from outlast.core.ids import Ids
from outlast.store.postgres.store import PostgresStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance import *  # noqa: F403 - the suite
from outlast.testing.conformance.concurrency import *  # noqa: F403 - capability SHARED
from outlast.testing.conformance.concurrency_documents import *  # noqa: F403 - same
from outlast.testing.conformance.concurrency_queues import *  # noqa: F403 - the same, of queues
from outlast.testing.conformance.concurrency_schedules import *  # noqa: F403 - same
from outlast.testing.conformance.concurrency_windows import *  # noqa: F403 - same
from outlast.testing.conformance.corruption_detection import *  # noqa: F403 - what verify finds
from outlast.testing.conformance.corruption_recovery import *  # noqa: F403 - what recovery repairs
from outlast.testing.conformance.corruption_recovery_records import *  # noqa: F403 - the rest
from outlast.testing.conformance.durable import *  # noqa: F403 - capability DURABLE
from support.corruption.postgres import PostgresCorrupter
from support.postgres.clock import DatabaseClock
from support.postgres.connection_reuse import Kept, kept_connections
from support.postgres.shared_store import Settled

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
def corrupter(store: PostgresStore) -> PostgresCorrupter:
    return PostgresCorrupter(store.address)


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url

"""The isolation level of the store's statements does not depend on the server's default."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Final

import asyncpg
import pytest

from outlast.core.run import Claim
from outlast.store.contract.queues import Queue
from outlast.store.postgres.caller_connection import run_in_thread
from outlast.store.postgres.placeholders import statements
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import LEASE, make_holder, put
from outlast.testing.servers.postgres import PostgresServer

from .pg_waiting import until_somebody_waits
from .sqlite_helpers import PATIENCE

LEVELS: Final = ("repeatable read", "serializable")
LEVEL: Final = "SELECT current_setting('transaction_isolation')"


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def url(postgres: PostgresServer, level: str) -> AsyncIterator[str]:
    """A database whose default is stricter than READ COMMITTED."""
    address = postgres.new_database()
    name = address.rpartition("/")[2]
    postgres.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    yield address
    postgres.drop_database(name)


@pytest.fixture
async def stores(url: str) -> AsyncIterator[list[PostgresStore]]:
    opened = [PostgresStore(url), PostgresStore(url)]
    for store in opened:
        await store.open()
    yield opened
    for store in opened:
        await store.close()


async def test_concurrency_limit_holds_whatever_the_default_isolation(
    stores: list[PostgresStore], url: str
) -> None:
    """A claim counts the runs that were opened while it waited for the queue's lock."""
    await stores[0].set_queue(Queue(name="default", concurrency=1))
    for type_ in ("one", "two"):
        await put(stores[0], type=type_)
    holder = await asyncpg.connect(url)
    before = holder.transaction(isolation="read_committed")
    await before.start()
    await holder.execute(statements()["queues.lock"].text, ["default"])

    claims = [
        asyncio.create_task(_claim(store, type_))
        for store, type_ in zip(stores, ("one", "two"), strict=True)
    ]
    await until_somebody_waits(url, sessions=2)
    await before.rollback()
    await holder.close()

    assert sum(len(claimed) for claimed in await asyncio.gather(*claims)) == 1


async def _claim(store: PostgresStore, type_: str) -> list[Claim]:
    holder = make_holder(type_)
    return await store.claim(holder, queue="default", types=[type_], limit=1, lease=LEASE)


@pytest.mark.parametrize("purpose", ["claim", "lease", "read-0", "write"])
async def test_single_statements_are_read_committed_whatever_the_default(
    stores: list[PostgresStore], purpose: str
) -> None:
    async with stores[0]._pool.connection(purpose).acquire() as runner:
        assert await runner.connection.fetchval(LEVEL) == "read committed"


@pytest.mark.parametrize("blocking", [False, True])
async def test_handler_transaction_is_read_committed_whatever_the_default(
    stores: list[PostgresStore], blocking: bool
) -> None:
    within = timedelta(seconds=PATIENCE)
    transaction = await stores[0].begin(within=within, blocking=blocking)

    if blocking:
        found = await run_in_thread(lambda: transaction.connection.execute(LEVEL).fetchone()[0])
    else:
        found = await transaction.connection.fetchval(LEVEL)

    assert found == "read committed"
    await transaction.rollback()


async def test_stricter_default_behind_a_pooler_is_a_health_warning(url: str, level: str) -> None:
    """Through a pooler the settings of a session cannot be sent."""
    store = PostgresStore(f"{url}?pooler=true&notify=false")
    await store.open()

    warnings = [text for text in await store.health_warnings() if level in text]
    await store.close()

    assert len(warnings) == 1
    assert "ALTER ROLE CURRENT_USER SET default_transaction_isolation" in warnings[0]


async def test_no_health_warning_without_a_pooler(stores: list[PostgresStore], level: str) -> None:
    assert not [text for text in await stores[0].health_warnings() if level in text]

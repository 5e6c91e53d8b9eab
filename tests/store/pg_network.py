"""A database behind a proxy that can lose replies, fall silent or refuse."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from outlast.store.postgres.store import PostgresStore
from outlast.testing.servers.postgres import PostgresServer
from support.servers.fault_proxy import FaultProxy, fault_proxy


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    name = postgres.new_database().rpartition("/")[2]
    yield name
    postgres.drop_database(name)


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[FaultProxy]:
    with fault_proxy(postgres.port) as between:
        yield between


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()

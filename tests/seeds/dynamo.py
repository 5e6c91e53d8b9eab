"""Fixtures for S2 on DynamoDB: a table of the test's own, a store in it, and an outsider."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from companion.companion import Companion, Rules
from outlast.store.keyvalue.engines.dynamodb.engine import DynamoDBEngine
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock

from .tables import REGION, Outsider


@pytest.fixture
def table() -> str:
    return f"s2-{secrets.token_hex(6)}"


@pytest.fixture
async def kept(dynamodb: str, table: str, clock: FakeClock) -> AsyncIterator[KeyValueStore]:
    """The store, open, by a clock that moves only when told."""
    engine = DynamoDBEngine(table, region=REGION, endpoint=dynamodb)
    store = KeyValueStore(engine, clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def outsider(dynamodb: str, table: str, kept: KeyValueStore) -> Outsider:
    return Outsider(dynamodb, table)


@pytest.fixture
async def friend(tmp_path: Path, kept: KeyValueStore) -> AsyncIterator[Companion]:
    """The companion with S2's own settings, its jobs in the table."""
    companion = Companion(tmp_path, kept, rules=Rules())
    async with companion.app:
        yield companion

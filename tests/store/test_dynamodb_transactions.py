"""Transactions of the size that DynamoDB accepts: 100 items."""

import secrets
from collections.abc import AsyncIterator, Sequence

import pytest

from outlast.core.decide import decide
from outlast.store.keyvalue.engine import Conditions, Key, KeyRange, Write
from outlast.store.keyvalue.engines.dynamodb.engine import MOST_WRITES, DynamoDBEngine
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import SUCCEEDED, make_job, new_id, take_many
from outlast.verify import verify

pytestmark = pytest.mark.slow


class SizedEngine(DynamoDBEngine):
    """Keeps how many items each transaction had."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(f"sizes-{secrets.token_hex(6)}", region="eu-central-1", endpoint=endpoint)
        self.sizes: list[int] = []

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        self.sizes.append(len(conditions.keys() | {write.key for write in writes}))
        return await super().transact(conditions, writes)


@pytest.fixture
async def engine(dynamodb: str) -> AsyncIterator[SizedEngine]:
    engine = SizedEngine(dynamodb)
    await engine.open()
    yield engine
    await engine.close()


async def test_a_transaction_writes_a_hundred_items_or_none(engine: SizedEngine) -> None:
    keys = [Key("many", f"{number:03}") for number in range(MOST_WRITES)]
    writes = [Write(key, {"number": number}) for number, key in enumerate(keys)]

    assert not await engine.transact({keys[-1]: "other version"}, writes)
    assert not await engine.range(KeyRange("many"), limit=MOST_WRITES)

    assert await engine.transact(dict.fromkeys(keys), writes)
    assert [found.key for found in await engine.range(KeyRange("many"), limit=1_000)] == keys


async def test_jobs_added_and_ended_together_fill_large_transactions(engine: SizedEngine) -> None:
    store = KeyValueStore(engine, clock=FakeClock())
    await store.open()
    jobs = [make_job() for _ in range(60)]

    await store.add(jobs)
    runs = await take_many(store, limit=60)
    assert all(await store.apply([decide(run, SUCCEEDED, new_id=new_id) for run in runs]))

    assert len(runs) == 60
    assert 50 < max(engine.sizes) <= MOST_WRITES
    assert not (await verify(store)).violations
    await store.close()

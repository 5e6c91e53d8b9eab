"""The table as a reader of the S2 format finds it: items, keys, fields and query."""

import re
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any

import boto3
import pytest

from outlast.core.event import CancelRequested, Failed
from outlast.core.ids import Ids
from outlast.core.job import DedupeKey
from outlast.errors import ForeignStore, StoreMissing
from outlast.store.contract.jobs import Added
from outlast.store.keyvalue.engines.dynamodb.engine import DynamoDBEngine
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    SECOND,
    SUCCEEDED,
    TICK,
    job_of,
    make_job,
    put,
    settle,
    started,
    take,
)
from outlast.testing.stores import ids_for_test

pytestmark = pytest.mark.slow

SK = re.compile(r"scheduled#\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z#[0-9a-f-]{36}")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids(clock: FakeClock) -> Ids:
    return ids_for_test(clock)


@pytest.fixture
def client(dynamodb: str) -> Any:
    return boto3.session.Session().client(
        "dynamodb", region_name="eu-central-1", endpoint_url=dynamodb
    )


@pytest.fixture
def engine(dynamodb: str) -> DynamoDBEngine:
    name = f"test-{secrets.token_hex(6)}"
    return DynamoDBEngine(name, region="eu-central-1", endpoint=dynamodb)


@pytest.fixture
async def store(engine: DynamoDBEngine, clock: FakeClock, ids: Ids) -> AsyncIterator[KeyValueStore]:
    keyvalue = KeyValueStore(engine, clock=clock, ids=ids)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()


def _table(engine: DynamoDBEngine) -> str:
    return engine._table.name


def _due(client: Any, engine: DynamoDBEngine, now: str) -> list[Mapping[str, Any]]:
    """S2's query, pasted: `PK = job AND SK <= scheduled#now`, with what is due just now."""
    found: list[Mapping[str, Any]] = client.query(
        TableName=_table(engine),
        KeyConditionExpression="PK = :job AND SK <= :now",
        ExpressionAttributeValues={
            ":job": {"S": "job"},
            ":now": {"S": f"scheduled#{now}#\uffff"},
        },
    )["Items"]
    return found


async def test_job_is_where_s2_looks_with_the_fields_it_names(
    store: KeyValueStore, client: Any, engine: DynamoDBEngine
) -> None:
    job_id = await put(store, params='{"user":7}', type="daily_summary")

    [item] = _due(client, engine, "2026-01-05T09:00:00.000000Z")

    assert item["PK"] == {"S": "job"}
    assert item["SK"] == {"S": f"scheduled#2026-01-05T09:00:00.000000Z#{job_id}"}
    assert SK.fullmatch(item["SK"]["S"])
    assert item["job_type"] == {"S": "daily_summary"}
    assert item["payload"] == {"S": '{"user":7}'}
    assert item["scheduled_for"] == item["created_at"] == {"S": "2026-01-05T09:00:00.000000Z"}
    assert (item["status"], item["attempts"]) == ({"S": "pending"}, {"N": "0"})
    assert not item.keys() & {"locked_by", "lock_expires_at", "last_error", "completed_at"}


async def test_due_jobs_come_by_time_the_one_due_now_included(
    store: KeyValueStore, client: Any, engine: DynamoDBEngine, clock: FakeClock
) -> None:
    now = clock.now() + HOUR
    late, due, early = [await put(store, at=when) for when in (now + TICK, now, now - SECOND)]

    found = _due(client, engine, "2026-01-05T10:00:00.000000Z")

    assert [item["job_id"]["S"] for item in found] == [early, due]
    assert late not in [item["job_id"]["S"] for item in found]


async def test_item_follows_its_job_through_a_claim_a_retry_and_its_end(
    store: KeyValueStore, client: Any, engine: DynamoDBEngine, clock: FakeClock
) -> None:
    claim = await started(store)
    [running] = _due(client, engine, "2026-01-05T09:00:00.000000Z")
    await settle(store, claim, Failed("it broke", delay=60 * SECOND))
    nothing_due = _due(client, engine, "2026-01-05T09:00:59.999999Z")
    [waiting] = _due(client, engine, "2026-01-05T09:01:00.000000Z")
    clock.advance(60 * SECOND)
    await settle(store, await take(store), SUCCEEDED)
    [ended] = _due(client, engine, "2026-01-05T09:01:00.000000Z")

    assert (running["status"], running["locked_by"]) == ({"S": "in_progress"}, {"S": "worker-1"})
    assert running["lock_expires_at"] == {"S": "2026-01-05T09:00:15.000000Z"}, LEASE
    assert nothing_due == []
    assert (waiting["status"], waiting["attempts"]) == ({"S": "failed"}, {"N": "1"})
    assert waiting["last_error"] == {"S": "it broke"}
    assert waiting["scheduled_for"] == {"S": "2026-01-05T09:01:00.000000Z"}
    assert waiting["SK"]["S"].split("#")[1] == waiting["scheduled_for"]["S"]
    assert "locked_by" not in waiting
    assert (ended["status"], ended["attempts"]) == ({"S": "completed"}, {"N": "1"})
    assert ended["completed_at"] == {"S": "2026-01-05T09:01:00.000000Z"}


async def test_dedupe_record_points_at_the_job_also_when_that_has_moved(
    store: KeyValueStore, client: Any, engine: DynamoDBEngine
) -> None:
    key = DedupeKey(key="summary#42", bucket="2026-01-05")
    claim = await started(store, key=key)
    await settle(store, claim, Failed("it broke", delay=60 * SECOND))

    where = {"PK": {"S": "scheduled-job#summary#42"}, "SK": {"S": "2026-01-05"}}
    record = client.get_item(TableName=_table(engine), Key=where)["Item"]
    target = {"PK": record["job_pk"], "SK": record["job_sk"]}
    job = client.get_item(TableName=_table(engine), Key=target)["Item"]

    assert job["job_id"] == record["job_id"] == {"S": claim.id}
    assert await store.add([make_job(key=key)]) == [Added(claim.id, created=False)]


async def test_dedupe_record_whose_job_is_missing_is_not_trusted(
    store: KeyValueStore, client: Any, engine: DynamoDBEngine
) -> None:
    key = DedupeKey(key="summary#42", bucket="2026-01-05")
    lost = await put(store, key=key)
    client.delete_item(
        TableName=_table(engine), Key={"PK": {"S": f"job-id#{lost}"}, "SK": {"S": "-"}}
    )

    again = await put(store, key=key)

    where = {"PK": {"S": "scheduled-job#summary#42"}, "SK": {"S": "2026-01-05"}}
    record = client.get_item(TableName=_table(engine), Key=where)["Item"]
    assert record["job_id"] == {"S": again}


async def test_cancelled_job_says_so(
    store: KeyValueStore, client: Any, engine: DynamoDBEngine
) -> None:
    job_id = await put(store)
    await settle(store, await job_of(store, job_id), CancelRequested())

    [item] = _due(client, engine, "2026-01-05T09:00:00.000000Z")

    assert item["status"] == {"S": "cancelled"}


async def test_table_with_other_keys_is_refused(client: Any, engine: DynamoDBEngine) -> None:
    client.create_table(
        TableName=_table(engine),
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )

    with pytest.raises(ForeignStore, match="other keys than PK and SK"):
        await KeyValueStore(engine).open()
    await engine.close()


async def test_table_is_there_when_the_store_was_opened(engine: DynamoDBEngine) -> None:
    before = engine.exists()
    with pytest.raises(StoreMissing, match="there is no table"):
        engine._table.describe()

    store = KeyValueStore(engine)
    await store.open()
    await store.close()

    assert not before
    assert engine.exists()

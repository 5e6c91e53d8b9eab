"""What is pruned on DynamoDB: a job goes at once and whole; its key stays, or for so long."""

import secrets
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import boto3
import pytest

from outlast.clock import SystemClock
from outlast.core.job import DedupeKey
from outlast.core.run import Lease
from outlast.errors import ConfigurationError, StoreReadOnly
from outlast.store.keyvalue.engines.dynamodb.engine import DynamoDBEngine
from outlast.store.keyvalue.engines.dynamodb.table import Table
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.open import open_store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import HOUR, SECOND, SUCCEEDED, make_job, settle, started
from outlast.testing.servers.dynamodb import url
from outlast.verify import verify

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)
MONDAY = DedupeKey(key="summary#42", bucket="2026-01-05")
FOR_EVER = DedupeKey(key="order#7", bucket="")


@pytest.fixture
def client(dynamodb: str) -> Any:
    session = boto3.session.Session()
    return session.client("dynamodb", region_name="eu-central-1", endpoint_url=dynamodb)


@pytest.fixture
def table() -> str:
    return f"expiry-{secrets.token_hex(6)}"


@pytest.fixture
def clock() -> FakeClock:
    """From now on: DynamoDB Local takes away what is past its time by the machine's clock."""
    return FakeClock(SystemClock().now())


@pytest.fixture
async def store(dynamodb: str, table: str, clock: FakeClock) -> AsyncIterator[KeyValueStore]:
    engine = DynamoDBEngine(table, region="eu-central-1", endpoint=dynamodb)
    keyvalue = KeyValueStore(engine, clock=clock, tombstones=400 * DAY)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()


def _items(client: Any, table: str) -> list[Any]:
    items: list[Any] = client.scan(TableName=table, ConsistentRead=True)["Items"]
    return items


async def _pruned(store: KeyValueStore, clock: FakeClock, key: DedupeKey) -> None:
    claim = await started(store, key=key)
    await store.attach(Lease(claim.job_id, claim.token), ["a.txt"])
    await settle(store, claim, SUCCEEDED)
    clock.advance(HOUR)
    assert await store.prune(older_than=HOUR - SECOND, limit=10) == 1


async def test_new_table_lets_items_expire_and_db_status_says_so(
    store: KeyValueStore, client: Any, table: str
) -> None:
    described = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]

    assert described == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
    assert (await store.describe())["expiry"] == "by expires_at"


async def test_migrate_turns_it_on_for_a_table_made_by_hand_and_twice_is_fine(
    dynamodb: str, client: Any, table: str
) -> None:
    _make(client, table)
    keyvalue = open_store(url(dynamodb, table))
    assert isinstance(keyvalue, KeyValueStore)
    await keyvalue.open()
    before = (await keyvalue.describe())["expiry"]

    await keyvalue.migrate()
    await keyvalue.migrate()

    assert before == "off; `outlast db migrate` turns it on"
    assert (await keyvalue.describe())["expiry"] == "by expires_at"
    await keyvalue.close()


async def test_foreign_expiry_attribute_stays(dynamodb: str, client: Any, table: str) -> None:
    _make(client, table)
    theirs = {"Enabled": True, "AttributeName": "ttl"}
    client.update_time_to_live(TableName=table, TimeToLiveSpecification=theirs)
    keyvalue = open_store(url(dynamodb, table))
    assert isinstance(keyvalue, KeyValueStore)
    await keyvalue.open()

    await keyvalue.migrate()

    assert (await keyvalue.describe())["expiry"] == "by ttl, so tombstones stay"
    await keyvalue.close()


async def test_table_works_without_the_right_to_let_items_expire(
    store: KeyValueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Table) -> str:
        raise StoreReadOnly("DynamoDB refuses access")

    monkeypatch.setattr(Table, "expires_by", refuse)

    assert (await store.describe())["expiry"] == "unknown: no permission to read it"


async def test_pruned_job_is_gone_whole_and_its_key_has_its_time(
    store: KeyValueStore, client: Any, table: str, clock: FakeClock
) -> None:
    before = {(item["PK"]["S"], item["SK"]["S"]) for item in _items(client, table)}
    await _pruned(store, clock, MONDAY)
    until = int((clock.now() + 400 * DAY).timestamp())

    left = [item for item in _items(client, table) if "job_pk" in item or "job_id" in item]

    [record] = left
    assert (record["PK"]["S"], record["SK"]["S"]) == ("scheduled-job#summary#42", "2026-01-05")
    assert record["expires_at"] == {"N": str(until)}
    new = {(item["PK"]["S"], item["SK"]["S"]) for item in _items(client, table)} - before
    assert {part for part, _ in new} <= {"scheduled-job#summary#42", "counter", "queue-name"}
    assert (await verify(store)).is_sound


async def test_key_past_its_time_is_free_though_its_record_is_still_there(
    store: KeyValueStore, client: Any, table: str, clock: FakeClock
) -> None:
    await _pruned(store, clock, MONDAY)
    clock.advance(400 * DAY - SECOND)
    [in_time] = await store.add([make_job(key=MONDAY)])
    there = [item for item in _items(client, table) if "expires_at" in item]
    clock.advance(2 * SECOND)
    [after] = await store.add([make_job(key=MONDAY)])
    [again] = await store.add([make_job(key=MONDAY)])

    assert (in_time.created, len(there)) == (False, 1)
    assert after.created
    assert (again.created, again.id) == (False, after.id)
    assert not [item for item in _items(client, table) if "expires_at" in item], "a live key"
    assert (await verify(store)).is_sound


async def test_key_whose_record_was_taken_away_is_free_and_nothing_is_amiss(
    store: KeyValueStore, client: Any, table: str, clock: FakeClock
) -> None:
    await _pruned(store, clock, MONDAY)
    where = {"PK": {"S": "scheduled-job#summary#42"}, "SK": {"S": "2026-01-05"}}
    client.delete_item(TableName=table, Key=where)  # as DynamoDB does

    report = await verify(store)
    [added] = await store.add([make_job(key=MONDAY)])

    assert report.is_sound
    assert added.created


async def test_key_without_a_bucket_is_for_ever(
    store: KeyValueStore, client: Any, table: str, clock: FakeClock
) -> None:
    await _pruned(store, clock, FOR_EVER)
    clock.advance(3000 * DAY)

    [added] = await store.add([make_job(key=FOR_EVER)])

    assert not added.created
    assert not [item for item in _items(client, table) if "expires_at" in item]


@pytest.mark.parametrize("span", ["", "often", "1h", "23h59m", "-3d", "99999999d"])
def test_time_that_cannot_be_is_refused(span: str) -> None:
    with pytest.raises(ConfigurationError, match="tombstones"):
        open_store(f"dynamodb://jobs?region=eu-central-1&tombstones={span}")


def _make(client: Any, table: str) -> None:
    names = (("PK", "HASH"), ("SK", "RANGE"))
    client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in names],
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n, _ in names],
        BillingMode="PAY_PER_REQUEST",
    )

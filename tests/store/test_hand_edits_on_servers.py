"""Hand edits on the real servers: a job runs at most once, and its neighbours run."""

import secrets
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from outlast.core.audit.violation import ViolationCode
from outlast.core.ids import Ids
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Conditions, Key, KeyRange, Write
from outlast.store.keyvalue.engines.dynamodb.engine import DynamoDBEngine
from outlast.store.keyvalue.engines.etcd.client import Cluster
from outlast.store.keyvalue.engines.etcd.engine import EtcdEngine
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    MANY,
    SUCCEEDED,
    put,
    settle,
    take_many,
)
from outlast.testing.stores import ids_for_test
from outlast.verify import verify
from support.engines.hands import DynamoDBHand, Hand, MemoryHand

if TYPE_CHECKING:
    from outlast.testing.servers.etcd import EtcdCluster

pytestmark = pytest.mark.slow

DAMAGES: list[dict[str, Any]] = [
    {"scheduled_for": "2026-01-05T10:00:00.000000Z"},
    {"lock_expires_at": 4_070_908_800},
    {"priority": "high"},
    {"token": None},
    {"delivery": None},
]
REGION = "eu-central-1"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids(clock: FakeClock) -> Ids:
    return ids_for_test(clock)


class Dynamo(DynamoDBEngine):
    """DynamoDB, with something to happen before the next transaction."""

    before: Any = None

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        before, self.before = self.before, None
        if before is not None:
            await before()
        return await super().transact(conditions, writes)


class Etcd(EtcdEngine):
    """etcd, with something to happen before the next transaction."""

    before: Any = None

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        before, self.before = self.before, None
        if before is not None:
            await before()
        return await super().transact(conditions, writes)


@pytest.fixture(params=["dynamodb", "etcd"])
def engine(request: pytest.FixtureRequest) -> Dynamo | Etcd:
    name = f"test-{secrets.token_hex(6)}"
    if request.param == "dynamodb":
        endpoint: str = request.getfixturevalue("dynamodb")
        return Dynamo(name, region=REGION, endpoint=endpoint)
    cluster: EtcdCluster = request.getfixturevalue("etcd")
    return Etcd(Cluster(hosts=cluster.hosts), prefix=name)


@pytest.fixture
def hand(engine: Dynamo | Etcd, request: pytest.FixtureRequest) -> Hand:
    if isinstance(engine, Etcd):
        return MemoryHand(engine)
    session = boto3.session.Session()
    endpoint = request.getfixturevalue("dynamodb")
    resource = session.resource("dynamodb", region_name=REGION, endpoint_url=endpoint)
    return DynamoDBHand(engine, resource.Table(engine._table.name))


@pytest.fixture
async def store(engine: Dynamo | Etcd, clock: FakeClock, ids: Ids) -> AsyncIterator[KeyValueStore]:
    keyvalue = KeyValueStore(engine, clock=clock, ids=ids)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()


async def test_a_job_edited_by_hand_runs_at_most_once_and_its_neighbours_run(
    store: KeyValueStore, hand: Hand, engine: Dynamo | Etcd, clock: FakeClock
) -> None:
    edited = [await put(store) for _ in DAMAGES]
    neighbours = [await put(store) for _ in range(2)]
    for job_id, damage in zip(edited, DAMAGES, strict=True):
        await hand.edit_job(job_id, **damage)

    claims = [claim for _ in range(3) for claim in await take_many(store, limit=2)]
    for claim in claims:
        await settle(store, claim, SUCCEEDED)
    clock.advance(2 * HOUR)
    later = await take_many(store)

    assert [claim.id for claim in claims] == neighbours
    assert later == []
    items = await engine.range(KeyRange(key_layout.JOB), limit=MANY)
    assert len(items) == len(edited) + len(neighbours), "no edit makes a second record"
    found = [v for v in (await verify(store)).violations if v.code is ViolationCode.QUARANTINED]
    assert {v.job_id for v in found} == set(edited)


async def test_a_lock_written_by_hand_is_not_overwritten_by_a_claim_that_has_read_before(
    store: KeyValueStore, hand: Hand, engine: Dynamo | Etcd, clock: FakeClock
) -> None:
    job_id = await put(store)
    until = key_layout.time_key(clock.now() + HOUR)

    async def lock() -> None:
        await hand.edit_job(job_id, locked_by="somebody", lock_expires_at=until)

    engine.before = lock
    claims = await take_many(store)

    assert claims == []
    item = await hand.job(job_id)
    assert (item["locked_by"], item["lock_expires_at"]) == ("somebody", until)
    clock.advance(HOUR + LEASE)
    assert [claim.id for claim in await take_many(store)] == [job_id]


async def test_a_record_without_its_version_works(store: KeyValueStore, hand: Hand) -> None:
    job_id = await put(store)
    await hand.edit_job(job_id, record_version=None)

    [claim] = await take_many(store)

    assert claim.id == job_id
    assert await settle(store, claim, SUCCEEDED)


async def test_an_item_of_s2_is_foreign_and_left_alone(
    store: KeyValueStore, hand: Hand, engine: Dynamo | Etcd
) -> None:
    own = await put(store)
    foreign = Key("job", f"scheduled#2026-01-05T08:00:00+00:00#{secrets.token_hex(16)}")
    fields = {"job_type": "sync", "payload": {"user": "ada"}, "status": "pending", "attempts": 0}
    await hand.write(foreign, {**fields, "scheduled_for": "2026-01-05T08:00:00+00:00"})

    claims = await take_many(store)

    assert [claim.id for claim in claims] == [own]
    assert (await verify(store)).is_sound
    assert any("not written by Outlast" in each for each in await store.health_warnings())
    [item] = await engine.get([foreign])
    assert item is not None
    assert item.value["payload"] == {"user": "ada"}


@pytest.mark.parametrize("text", ["hello", "[" * 3_000, "[1]", '{"seq":' + "9" * 5_000 + "}"])
async def test_a_value_that_is_no_json_object_is_named(
    etcd: "EtcdCluster", clock: FakeClock, ids: Ids, text: str
) -> None:
    engine = EtcdEngine(Cluster(hosts=etcd.hosts), prefix=f"test-{secrets.token_hex(6)}")
    keyvalue = KeyValueStore(engine, clock=clock, ids=ids)
    await keyvalue.open()
    first, second = [await put(keyvalue) for _ in range(2)]
    [item] = [e for e in await engine.range(KeyRange("job"), limit=9) if first in e.key.sort]
    put_request = {"key": engine._text(item.key), "value": _base64(text)}
    await engine._client.ask("/v3/kv/put", put_request)

    claims = await take_many(keyvalue)

    found = (await verify(keyvalue)).violations
    await keyvalue.close()
    assert [claim.id for claim in claims] == [second]
    assert first in {violation.job_id for violation in found}


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()

"""Jobs spread over shards: the load of each partition, the order of reads, the number of shards."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import count
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.event import CancelRequested
from outlast.core.run import Lease
from outlast.errors import ConfigurationError, SchemaTooNew, StoreBusy
from outlast.store.contract.jobs import Filter
from outlast.store.keyvalue import hot_partition, key_layout
from outlast.store.keyvalue import store as keyvalue
from outlast.store.keyvalue.engine import Key, KeyRange, Write
from outlast.store.keyvalue.number_source import NumberSource
from outlast.store.keyvalue.repositories import event_numbers
from outlast.store.keyvalue.sharded_engine import ShardedEngine
from outlast.store.keyvalue.shards import of_text
from outlast.store.keyvalue.store import KeyValueStore
from outlast.store.keyvalue.unit_of_work import UnitOfWork
from outlast.store.open import open_store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SUCCEEDED,
    ended,
    job_of,
    make_job,
    put,
    settle,
    take_many,
)
from outlast.testing.stores import ids_for_test
from support.engines.memory import MemoryEngine
from support.engines.write_units import WriteUnits

JOBS = 200


async def _opened(
    engine: MemoryEngine, shards: int, clock: FakeClock | None = None
) -> KeyValueStore:
    clock = clock or FakeClock()
    store = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock), shards=shards)
    await store.open()
    return store


async def _largest_share(shards: int) -> float:
    """The part of all write units that the busiest partition has, over the whole life of jobs."""
    engine, clock = WriteUnits(), FakeClock()
    store = await _opened(engine, shards, clock)
    for _ in range(JOBS):
        await put(store)
    claims = await take_many(store, limit=JOBS)
    await store.renew([Lease(claim.id, claim.token) for claim in claims], span=HOUR)
    for claim in claims:
        assert await settle(store, claim, SUCCEEDED)
    clock.advance(2 * HOUR)
    assert await store.prune(older_than=HOUR, limit=MANY) == JOBS
    await store.close()
    return max(engine.units.values()) / engine.units.total()


async def test_with_eight_shards_no_partition_has_a_fifth_of_the_write_units() -> None:
    assert await _largest_share(8) < 1 / 5 < await _largest_share(1)


async def test_with_one_shard_the_layout_is_that_of_s2() -> None:
    engine = MemoryEngine()
    store = await _opened(engine, 1)
    await ended(store)
    job_id = await put(store)
    await settle(store, await job_of(store, job_id), CancelRequested("no"))

    parts = {key.part: value for key, value in engine.everything().items()}

    assert parts["outlast"] == {"version": 1}
    assert parts["counter"] == {"last": 1}
    assert {"job", "seq", "ended", "run", "event", "stream"} <= parts.keys()
    assert not [part for part in parts if "~" in part]


async def test_all_that_grows_with_jobs_is_spread() -> None:
    engine = MemoryEngine()
    store = await _opened(engine, 8)
    jobs = [make_job(active_key=f"key {n}", params=f'"{n:03000}"') for n in range(JOBS)]
    await store.add(jobs)
    claims = await take_many(store)
    for claim in claims[: JOBS // 2]:
        await settle(store, claim, SUCCEEDED)
    for claim in claims[JOBS // 2 :]:
        await settle(store, await job_of(store, claim.id), CancelRequested("no"))

    held = Counter(key.part for key in engine.everything())

    large = {part for part, number in held.items() if number > JOBS // 4}
    assert large == set(), "no partition holds a quarter of what there is of one kind"


@given(
    numbers=st.sets(st.integers(0, 999), max_size=80),
    limit=st.integers(0, 90),
    start=st.integers(0, 999),
    end=st.integers(0, 999),
    reverse=st.booleans(),
    shards=st.integers(2, 64),
)
async def test_range_is_that_of_a_store_with_one_shard(
    numbers: set[int], limit: int, start: int, end: int, reverse: bool, shards: int
) -> None:
    plain = MemoryEngine()
    spread = ShardedEngine(MemoryEngine(), shards=shards)
    writes = [Write(Key("ready#q", key_layout.number(n)), {"n": n}) for n in numbers]
    for write in writes:
        assert await plain.transact({}, [write])
        assert await spread.transact({}, [write])
    span = KeyRange("ready#q", key_layout.number(start), key_layout.number(end))

    found = await spread.range(span, limit=limit, reverse=reverse)

    wanted = await plain.range(span, limit=limit, reverse=reverse)
    assert [(each.key, each.value) for each in found] == [(e.key, e.value) for e in wanted]


async def test_shard_that_holds_all_first_records_is_read_on() -> None:
    spread = ShardedEngine(MemoryEngine(), shards=4)
    numbers = [*range(0, 400, 4), 401, 402, 403]
    for number in numbers:
        await spread.transact({}, [Write(Key("ready#q", key_layout.number(number)), {"n": number})])

    found = await spread.range(KeyRange("ready#q"), limit=60)

    assert [each.value["n"] for each in found] == numbers[:60]


async def test_follower_misses_no_event_that_was_numbered_before_it_read() -> None:
    store = await _opened(MemoryEngine(), 8)
    jobs = [await put(store) for _ in range(3)]
    used = {of_text(job_id, 8) for job_id in jobs}
    other = next(text for text in map(str, count()) if of_text(text, 8) not in used)
    late = UnitOfWork(store.engine)
    number = await event_numbers.take(late, other)
    for job_id in jobs:
        await settle(store, await job_of(store, job_id), CancelRequested("no"))

    [*_, last] = await store.stream(limit=MANY)

    assert number < last.id
    assert not await late.commit(), "it would become visible behind the follower"
    assert await event_numbers.take(UnitOfWork(store.engine), other) > last.id


async def test_events_are_numbered_in_the_order_in_which_they_were_written() -> None:
    store = await _opened(MemoryEngine(), 8)
    jobs = [await put(store) for _ in range(20)]
    for job_id in jobs:
        await settle(store, await job_of(store, job_id), CancelRequested("no"))

    assert [event.job_id for event in await store.stream(limit=MANY)] == jobs


async def test_follower_of_a_store_at_rest_writes_nothing() -> None:
    engine = MemoryEngine()
    store = await _opened(engine, 8)
    await settle(store, await job_of(store, await put(store)), CancelRequested("no"))
    [event] = await store.stream(limit=MANY)
    written: list[Sequence[Write]] = []
    engine.before = written.append

    assert await store.stream(after=event.id, limit=MANY) == []
    assert await store.stream(limit=MANY) == [event]

    assert written == []


@pytest.mark.parametrize(("made", "asked"), [(1, 8), (8, 1), (8, 4)])
async def test_another_number_of_shards_is_refused(made: int, asked: int) -> None:
    engine = MemoryEngine()
    await (await _opened(engine, made)).close()

    with pytest.raises(ConfigurationError, match=f"created with shards={made}, .* shards={asked}"):
        await _opened(engine, asked)

    await _opened(engine, made)


async def test_outlast_that_knows_no_shards_does_not_open_such_a_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = MemoryEngine()
    await _opened(engine, 8)
    monkeypatch.setattr(keyvalue, "SHARDED_VERSION", 1)

    with pytest.raises(SchemaTooNew):
        await _opened(engine, 1)


@pytest.mark.parametrize("text", ["0", "65", "-1", "many", "2.0", ""])
@pytest.mark.parametrize("url", ["dynamodb://jobs", "etcd://host/jobs"])
def test_number_of_shards_that_cannot_be_is_refused(url: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match="write a whole number from 1 to 64: shards=8"):
        open_store(f"{url}?shards={text}")


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("dynamodb://jobs?region=eu-central-1", "dynamodb://jobs?region=eu-central-1&shards=8"),
        ("etcd://me:secret@host:2379/jobs?shards=3", "etcd://host:2379/jobs?shards=8"),
    ],
)
def test_refusal_names_the_address_to_use(url: str, right: str) -> None:
    store = open_store(url)
    assert isinstance(store, KeyValueStore)

    assert right in str(store._other_shards(8))
    assert "secret" not in str(store._other_shards(8))


async def test_store_describes_its_shards() -> None:
    assert (await (await _opened(MemoryEngine(), 8)).describe())["shards"] == "8"


async def test_concurrent_calls_of_a_process_share_one_request_for_their_numbers() -> None:
    engine = WriteUnits()
    store = await _opened(engine, 8)

    await asyncio.gather(*(put(store) for _ in range(50)))

    assert engine.units["counter"] <= 5
    numbers = {job.seq for job in await store.find(Filter(), limit=MANY)}
    assert len(numbers) == 50


async def test_calls_that_share_a_failed_request_all_learn_of_it() -> None:
    engine = WriteUnits()
    source = NumberSource(engine)
    advance = engine.advance
    engine.advance = AsyncMock(side_effect=StoreBusy("throttled"))  # type: ignore[method-assign]

    told = await asyncio.gather(*(source.draw(1) for _ in range(3)), return_exceptions=True)

    assert [type(each) for each in told] == [StoreBusy] * 3
    engine.advance = advance  # type: ignore[method-assign]
    assert await source.draw(2) == 1


async def test_cancelled_call_leaves_the_others_their_numbers() -> None:
    source = NumberSource(MemoryEngine())
    first, second, third = [asyncio.create_task(source.draw(2)) for _ in range(3)]
    await asyncio.sleep(0)

    second.cancel()

    assert (await first, await third) == (1, 5)
    assert await source.draw(1) == 7


@pytest.mark.parametrize(
    ("shards", "count", "warned"), [(1, 83, 0), (1, 84, 1), (2, 167, 0), (2, 168, 1)]
)
async def test_partition_is_named_before_it_throttles(shards: int, count: int, warned: int) -> None:
    clock = FakeClock()
    store = await _opened(MemoryEngine(partition_units=16), shards, clock)  # 2 jobs per second each
    await store.add([make_job() for _ in range(count)])
    for claim in await take_many(store, limit=count):
        assert await settle(store, claim, SUCCEEDED)

    now = [f"?shards={2 * shards} " in warning for warning in await store.health_warnings()]
    clock.advance(HOUR)
    later = [f"?shards={2 * shards} " in warning for warning in await store.health_warnings()]

    assert (sum(now), sum(later)) == (warned, 0)


def test_store_with_the_most_shards_is_not_told_to_have_more() -> None:
    assert "?shards=64 " in hot_partition._remedy(64)
    assert "?shards" not in hot_partition._remedy(128)

"""Renewals write the job's record alone, and maintenance still finds every expired lease."""

import pytest

from outlast.clock import to_micros
from outlast.core.audit.violation import ViolationCode
from outlast.core.event import Succeeded
from outlast.core.run import Claim
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import KeyRange, StoredItem, Write
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    SECOND,
    TICK,
    make_job,
    put,
    settle,
    take,
    take_many,
)
from outlast.testing.conformance.long_texts import params_of
from outlast.testing.stores import ids_for_test
from outlast.verify import verify
from support.engines.memory import MemoryEngine

MANY = 60


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(engine: MemoryEngine, clock: FakeClock) -> KeyValueStore:
    opened = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))
    await opened.open()
    return opened


async def _listed(engine: MemoryEngine) -> list[StoredItem]:
    return await engine.range(KeyRange(f"{key_layout.OPEN}default"), limit=100)


async def _renewed(store: KeyValueStore, claims: list[Claim]) -> list[bool]:
    leases = [claim.lease for claim in claims]
    return [renewal.held for renewal in await store.renew(leases, span=LEASE)]


async def test_many_renewals_are_few_transactions_and_write_no_payload(
    store: KeyValueStore, engine: MemoryEngine
) -> None:
    await store.add([make_job(params=params_of(200 * 1024)) for _ in range(MANY)])
    claims = await take_many(store, limit=MANY)
    written: list[list[Write]] = []
    engine.before = lambda writes: written.append(list(writes))

    assert await _renewed(store, claims) == [True] * MANY

    assert len(written) == 3
    parts = {write.key.part for writes in written for write in writes}
    assert parts == {key_layout.JOB}
    assert sum(len(str(write.value)) for writes in written for write in writes) < MANY * 2048


async def test_lock_in_the_item_is_true_at_every_renewal(
    store: KeyValueStore, engine: MemoryEngine, clock: FakeClock
) -> None:
    await put(store)
    claim = await take(store)

    for _ in range(4):
        clock.advance(5 * SECOND)
        await _renewed(store, [claim])
        [item] = await engine.range(KeyRange(key_layout.JOB), limit=2)
        until = key_layout.from_time_key(item.value["lock_expires_at"])
        assert to_micros(until) == to_micros(clock.now() + LEASE)


async def test_renewed_lease_is_never_expired_and_then_expires_in_time(
    store: KeyValueStore, engine: MemoryEngine, clock: FakeClock
) -> None:
    await put(store)
    claim = await take(store)
    [first] = await _listed(engine)
    for _ in range(6):
        clock.advance(LEASE - 3 * SECOND)
        assert await _renewed(store, [claim]) == [True]
        clock.advance(2 * SECOND)
        assert await store.expired_leases(limit=10) == []
        assert [each.lapsed for each in (await store.overview(span=HOUR)).running] == [0]
        assert not (await store.maintenance_due(abandoned=HOUR)).expired_leases, "listed anew"
    [last] = await _listed(engine)
    assert last.key > first.key

    clock.advance(LEASE - 2 * SECOND - TICK)
    assert await store.expired_leases(limit=10) == []
    clock.advance(TICK)

    assert (await store.maintenance_due(abandoned=HOUR)).expired_leases
    assert [job.id for job in await store.expired_leases(limit=10)] == [claim.id]
    assert [each.lapsed for each in (await store.overview(span=HOUR)).running] == [1]


async def test_shorter_renewal_expires_earlier(store: KeyValueStore, clock: FakeClock) -> None:
    await put(store)
    claim = await take(store)

    await store.renew([claim.lease], span=SECOND)
    clock.advance(SECOND)

    assert [job.id for job in await store.expired_leases(limit=10)] == [claim.id]


async def test_renewed_run_ends_without_a_trace_in_the_list(
    store: KeyValueStore, engine: MemoryEngine, clock: FakeClock
) -> None:
    await put(store)
    claim = await take(store)
    clock.advance(5 * SECOND)
    await _renewed(store, [claim])
    assert (await verify(store)).violations == ()

    assert await settle(store, claim, Succeeded("1"))

    assert await _listed(engine) == []
    assert (await verify(store)).violations == ()


async def test_list_that_lacks_a_renewed_run_is_found_by_verify(
    store: KeyValueStore, engine: MemoryEngine, clock: FakeClock
) -> None:
    await put(store)
    claim = await take(store)
    clock.advance(5 * SECOND)
    await _renewed(store, [claim])
    [entry] = await _listed(engine)

    await engine.transact({}, [Write(entry.key, None)])

    found = [violation.code for violation in (await verify(store)).violations]
    assert found == [ViolationCode.DETACHED]


async def test_lost_lease_among_many_leaves_the_others_renewed(
    store: KeyValueStore, clock: FakeClock
) -> None:
    await store.add([make_job(params=params_of(size)) for size in (1, 2000, 2048, 9000)])
    claims = await take_many(store)
    assert await settle(store, claims[1], Succeeded("1"))
    clock.advance(LEASE - SECOND)

    assert await _renewed(store, claims) == [True, False, True, True]

    clock.advance(2 * SECOND)
    assert await store.expired_leases(limit=10) == []

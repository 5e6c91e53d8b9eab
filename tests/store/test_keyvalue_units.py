"""Write units on DynamoDB, counted at the engine port by the rules of AWS."""

import json
from dataclasses import replace
from itertools import count

import pytest
from bench.keyvalue_units import HOLDER, LEASE, SIZES, Parts, operations
from bench.metered import Meter, Metered

from outlast.core.event import Failed
from outlast.store.keyvalue.engines.dynamodb.engine import STATUS_DELAY
from outlast.store.keyvalue.repositories.bodies import MAX_INLINE
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.conformance.factories import TYPE, put, settle, started
from support.engines.memory import MemoryEngine

MOST_PER_SMALL_JOB = 23
MOST_PER_RENEWAL = 8
NUMBERS = count(1)


@pytest.fixture
def meter() -> Meter:
    return Meter()


@pytest.fixture
async def store(meter: Meter) -> KeyValueStore:
    engine = MemoryEngine()
    engine.limits = replace(engine.limits, status_delay=STATUS_DELAY)
    store = KeyValueStore(Metered(engine, meter))
    await store.open()
    return store


async def _by_operation(store: KeyValueStore, meter: Meter, size: int) -> dict[str, Parts]:
    found = await operations(store, meter.bill, NUMBERS, size)
    return {parts.operation: parts for parts in found}


async def test_small_job_costs_no_more_than_23_write_units(
    store: KeyValueStore, meter: Meter
) -> None:
    cost = await _by_operation(store, meter, 20)
    assert sum(cost[name].total for name in ("enqueue", "claim", "end")) <= MOST_PER_SMALL_JOB
    parts = {part.partition("#")[0] for part in cost["enqueue"].units}
    assert parts == {"job", "job-id", "seq", "ready", "counter"}
    assert (cost["renewal"].units, cost["progress"].units) == ({"job": 1}, {"job": 1})


@pytest.mark.parametrize("size", SIZES[1:])
async def test_params_are_paid_for_at_enqueue_and_prune_alone(
    store: KeyValueStore, meter: Meter, size: int
) -> None:
    small, large = [await _by_operation(store, meter, each) for each in (20, size)]

    more = {name: large[name].total - small[name].total for name in small}
    body = 2 * (size // 1024 + 1)  # of a transaction
    assert more == {**dict.fromkeys(small, 0), "enqueue": body, "prune": body}


@pytest.mark.parametrize("size", [20, 600, 900, 1500, MAX_INLINE, *SIZES[1:]])
async def test_renewal_costs_at_most_8_write_units_at_any_payload(
    store: KeyValueStore, meter: Meter, size: int
) -> None:
    error = "e" * min(size, MAX_INLINE)
    params = json.dumps("x" * (size - 2))
    await settle(store, await started(store, params=params), Failed(error))
    await put(store, params=params)
    claims = await store.claim(HOLDER, queue="default", types=[TYPE], limit=2, lease=LEASE)
    meter.bill.reset()

    await store.renew([claim.lease for claim in claims], span=LEASE)

    assert 0 < meter.bill.total <= MOST_PER_RENEWAL * len(claims)
    assert meter.bill.units.keys() == {"job"}

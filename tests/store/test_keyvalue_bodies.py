"""Bodies: which texts leave their record, when they are deleted, and what happens without them."""

from datetime import timedelta
from typing import Any

import pytest

from outlast.core.audit.violation import ViolationCode
from outlast.core.delivery import Delivery
from outlast.core.event import Edited, Failed, Succeeded
from outlast.core.position import JobEdit
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem, Write
from outlast.store.keyvalue.repositories.bodies import MAX_INLINE
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    SECOND,
    ended,
    job_of,
    put,
    settle,
    started,
    take,
)
from outlast.testing.conformance.long_texts import params_of
from outlast.testing.stores import ids_for_test
from outlast.verify import verify
from support.engines.memory import MemoryEngine

LONG = params_of(MAX_INLINE + 1)


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(most_writes=10)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(engine: MemoryEngine, clock: FakeClock) -> KeyValueStore:
    opened = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))
    await opened.open()
    return opened


async def _bodies(engine: MemoryEngine) -> list[StoredItem]:
    ranges = [await engine.range(KeyRange(part), limit=100) for part in key_layout.BODY_PARTS]
    return [entry for found in ranges for entry in found]


async def _item(engine: MemoryEngine) -> dict[str, Any]:
    [entry] = await engine.range(KeyRange(key_layout.JOB), limit=2)
    return dict(entry.value)


async def _violations(store: KeyValueStore) -> list[ViolationCode]:
    return [violation.code for violation in (await verify(store)).violations]


async def test_text_up_to_2_kib_stays_in_the_item_and_a_longer_one_has_a_body(
    store: KeyValueStore, engine: MemoryEngine
) -> None:
    short, error = params_of(MAX_INLINE), "x" * MAX_INLINE
    await settle(store, await started(store, params=short), Failed(error))
    item = await _item(engine)
    assert (item["payload"], item["last_error"]) == (short, error)
    assert await _bodies(engine) == []

    await settle(store, await take(store), Failed(f"{error}x"))
    item = await _item(engine)
    [body] = await _bodies(engine)
    assert "last_error" not in item
    assert Key(item["last_error_pk"], item["last_error_sk"]) == body.key
    assert body.value["text"] == f"{error}x"


async def test_error_of_a_run_and_last_error_of_its_job_are_one_body(
    store: KeyValueStore, engine: MemoryEngine
) -> None:
    await ended(store, Failed(LONG, delay=HOUR))
    [run] = await engine.range(KeyRange(key_layout.RUN), limit=2)

    [body] = await _bodies(engine)

    assert run.value["error_sk"] == (await _item(engine))["last_error_sk"] == body.key.sort


async def test_claim_renewal_progress_and_end_do_not_write_the_params(
    store: KeyValueStore, engine: MemoryEngine
) -> None:
    await put(store, params=LONG)
    written: list[Write] = []
    engine.before = written.extend

    claim = await take(store)
    await store.renew([claim.lease], span=SECOND)
    await store.record_progress([(claim.lease, "1")])
    await settle(store, claim, Succeeded("1"))

    assert written
    assert not [write for write in written if LONG in str(write.value)]


async def test_edit_deletes_the_body_that_it_replaces(
    store: KeyValueStore, engine: MemoryEngine
) -> None:
    job_id = await put(store, params=LONG)

    for params, left in ((params_of(9000), 1), ("{}", 0), (LONG, 1)):
        assert await settle(store, await job_of(store, job_id), Edited(JobEdit(params=params)))
        assert len(await _bodies(engine)) == left


async def test_bodies_of_a_chain_and_its_runs_are_pruned_with_it(
    store: KeyValueStore, engine: MemoryEngine, clock: FakeClock
) -> None:
    await ended(store, Failed(LONG), params=LONG, delivery=Delivery.LINKED)
    await settle(store, await take(store), Succeeded(LONG))
    assert len(await _bodies(engine)) == 4, "twice params, an error, a result"
    clock.advance(HOUR)

    assert await store.prune(older_than=timedelta(0), limit=10) == 2

    assert await _bodies(engine) == []


async def test_verify_finds_a_body_that_is_missing(
    store: KeyValueStore, engine: MemoryEngine
) -> None:
    await settle(store, await started(store, params=LONG), Failed(LONG, delay=HOUR))
    for body in await _bodies(engine):
        assert await _violations(store) == []
        await engine.transact({}, [Write(body.key, None)])

        assert await _violations(store) == [ViolationCode.BODY_MISSING]

        await engine.transact({}, [Write(body.key, body.value)])


async def test_verify_finds_a_body_of_no_job(store: KeyValueStore, engine: MemoryEngine) -> None:
    job_id = await put(store, params=LONG)
    [body] = await _bodies(engine)
    other = key_layout.body_key(body.key.sort.replace(job_id, job_id[::-1]))
    await engine.transact({}, [Write(other, body.value)])

    assert await _violations(store) == [ViolationCode.DANGLING_BODY]


async def test_job_without_its_body_neither_stops_its_queue_nor_a_command(
    store: KeyValueStore, engine: MemoryEngine
) -> None:
    broken = await put(store, params=LONG)
    [body] = await _bodies(engine)
    await engine.transact({}, [Write(body.key, None)])
    sound = await put(store, params="{}")

    claims = [await take(store), await take(store)]

    assert [(claim.id, claim.params) for claim in claims] == [(broken, ""), (sound, "{}")]
    assert (await job_of(store, broken)).params == ""
    assert await settle(store, claims[0], Failed("params are no JSON", permanent=True))


async def test_reader_that_meets_an_edit_has_the_params_before_or_after_it(
    store: KeyValueStore, engine: MemoryEngine
) -> None:
    job_id = await put(store, params=LONG)
    job = await job_of(store, job_id)
    edited, read = params_of(9000), engine.get

    async def get(keys: list[Key]) -> list[StoredItem | None]:
        if any(key.part.startswith(key_layout.BODY) for key in keys):  # it has read the record
            engine.get = read  # type: ignore[method-assign]
            assert await settle(store, job, Edited(JobEdit(params=edited, priority=7)))
        return await read(keys)

    engine.get = get  # type: ignore[method-assign,assignment]
    found = await job_of(store, job_id)

    assert (found.params, found.priority) == (edited, 7)

"""Schedules as the key-value store keeps them: small transactions, and what finds them."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from outlast import Outlast
from outlast.clock import to_micros
from outlast.core.audit.violation import ViolationCode
from outlast.core.group import NewGroup
from outlast.core.job import DedupeKey
from outlast.core.ordering import Ordering
from outlast.core.schedule import Schedule, SlotOutcome
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.contract.schedules import FireResult, SetSchedule
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem, Write
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    make_firing,
    make_job,
    new_id,
    put,
    put_schedule,
)
from outlast.testing.servers import dynamodb as local
from outlast.testing.stores import ids_for_test
from outlast.verify import verify
from support.engines.memory import MemoryEngine

if TYPE_CHECKING:
    from outlast.testing.servers.etcd import EtcdCluster

SMALLEST = 10
SOON = 120.0
GHOST = Key(key_layout.TRIGGER, key_layout.trigger_sort(START, "missing"))


class _Counted(MemoryEngine):
    """Remembers how many records each transaction wrote, and how many entries were read."""

    def __init__(self) -> None:
        super().__init__(most_writes=SMALLEST)
        self.sizes: list[int] = []
        self.read = 0
        self.before = self._note

    def _note(self, writes: Sequence[Write]) -> None:
        self.sizes.append(len(writes))

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        found = await super().range(span, limit=limit, reverse=reverse)
        self.read += len(found)
        return found


async def _opened(engine: MemoryEngine) -> KeyValueStore:
    clock = FakeClock()
    store = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))
    await store.open()
    return store


async def _found(store: KeyValueStore) -> list[ViolationCode]:
    return [violation.code for violation in (await verify(store)).violations]


async def test_usual_trigger_is_one_transaction_of_the_smallest_engine() -> None:
    engine = _Counted()
    store = await _opened(engine)
    schedule = await put_schedule(store, START)
    await put(store)  # its queue is on the list
    engine.sizes.clear()

    job = make_job(active_key="one at a time", start_within=HOUR)
    assert await store.fire([make_firing(schedule, job=job)]) == [FireResult.WRITTEN]

    assert engine.sizes == [SMALLEST]  # besides a number for the job


async def test_slots_that_were_missed_go_many_at_a_time() -> None:
    engine = _Counted()
    store = await _opened(engine)
    schedule = await put_schedule(store, START)
    firings = []
    for _ in range(21):
        firings.append(make_firing(schedule, SlotOutcome.MISSED))
        schedule = replace(schedule, next_slot=firings[-1].next_slot)
    engine.sizes.clear()

    assert await store.fire(firings) == [FireResult.WRITTEN] * 21

    assert engine.sizes == [SMALLEST] * 3
    assert (await _stands(store, schedule)).next_slot == START + 21 * HOUR
    assert len(await store.slots(schedule.series, limit=MANY)) == 21


async def test_trigger_with_all_options_fits_the_smallest_engine() -> None:
    store = await _opened(MemoryEngine(most_writes=SMALLEST))
    group = NewGroup(id=new_id(), total=1)
    await store.add_group(group)
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION))
    schedule = await put_schedule(store, START)
    job = make_job(
        key=DedupeKey(key="k"),
        active_key="a",
        start_within=HOUR,
        group_id=group.id,
        member=True,
    )

    assert await store.fire([make_firing(schedule, job=job)]) == [FireResult.WRITTEN]

    assert (await store.due_schedules(ahead=HOUR, limit=MANY)).schedules == [
        await _stands(store, schedule)
    ]
    assert await _found(store) == []


async def test_reading_due_schedules_costs_what_is_due() -> None:
    engine = _Counted()
    store = await _opened(engine)
    for number in range(20):
        await put_schedule(store, START + number * HOUR, name=f"s{number}")
    engine.read = 0

    due = await store.due_schedules(limit=MANY)

    assert [each.name for each in due.schedules] == ["s0"]
    assert engine.read == 2  # the one that is due, and the next


@pytest.mark.parametrize(
    "part", [key_layout.SCHEDULE_NAME, key_layout.TRIGGER, key_layout.SCHEDULE_STATE]
)
async def test_entry_that_a_schedule_lacks_is_found_by_verify(part: str) -> None:
    engine = MemoryEngine()
    store = await _opened(engine)
    await put_schedule(store, START)
    [entry] = await engine.range(KeyRange(part), limit=MANY)

    await engine.transact({}, [Write(entry.key, None)])

    assert await _found(store) == [ViolationCode.SCHEDULE_INDEX_MISMATCH]


@pytest.mark.parametrize("part", [key_layout.SCHEDULE_NAME, key_layout.TRIGGER])
async def test_entry_that_a_schedule_lacks_is_written_when_it_is_saved(part: str) -> None:
    engine = MemoryEngine()
    store = await _opened(engine)
    schedule = await put_schedule(store, START)
    [entry] = await engine.range(KeyRange(part), limit=MANY)
    await engine.transact({}, [Write(entry.key, None)])
    value = SetSchedule(plan=schedule.plan, next_slot=START, next_trigger_at=START)

    assert await store.set_schedule(schedule.id, expected=schedule.version, value=value)

    assert await _found(store) == []


async def test_dangling_trigger_is_found_by_verify_and_stops_no_schedule() -> None:
    engine = MemoryEngine()
    store = await _opened(engine)
    schedule = await put_schedule(store, START)

    await engine.transact({}, [Write(GHOST, {"id": "missing", "at": to_micros(START)})])

    assert await _found(store) == [ViolationCode.SCHEDULE_INDEX_MISMATCH]
    assert (await store.due_schedules(limit=MANY)).schedules == [schedule]


async def test_schedule_of_which_half_is_gone_stops_no_other() -> None:
    engine = MemoryEngine()
    store = await _opened(engine)
    broken = await put_schedule(store, START, name="broken")
    whole = await put_schedule(store, START, name="whole")

    await engine.transact({}, [Write(Key(key_layout.SCHEDULE, broken.id), None)])

    assert (await store.due_schedules(limit=MANY)).schedules == [whole]
    assert await store.schedules(limit=MANY) == [whole]


async def _stands(store: KeyValueStore, schedule: Schedule) -> Schedule:
    found = await store.schedule(schedule.id)
    assert found is not None
    return found


async def _works(url: str) -> None:
    """A worker brings its app's schedule in, triggers it on time and runs what it makes."""
    app, ran = Outlast(url, poll="50ms"), asyncio.Event()
    app.job(name="tick")(ran.set)
    app.schedule("ticking", every="1s", job_type="tick", coalesce=True, misfire_grace="1m")

    async with app, app.worker() as worker:
        async with asyncio.timeout(SOON):
            await ran.wait()
        await app.schedules.pause("ticking")
        await worker.drained()

        jobs = await app.store.find(Filter(), limit=MANY)
        rows = await app.schedules.history("ticking")
        assert {job.slot_at for job in jobs} == {row.slot.at for row in rows}
        assert {row.job_id for row in rows} == {job.id for job in jobs}
        assert (await verify(app.store)).violations == ()


@pytest.mark.slow
async def test_worker_triggers_its_schedules_on_etcd(etcd: "EtcdCluster") -> None:
    await _works(etcd.url(f"schedules-{secrets.token_hex(4)}"))


@pytest.mark.slow
async def test_worker_triggers_its_schedules_on_dynamodb(dynamodb: str) -> None:
    prefix = f"&prefix=schedules-{secrets.token_hex(4)}:&max_skew=0&beat=0.2"
    await _works(local.url(dynamodb, "tests") + prefix)

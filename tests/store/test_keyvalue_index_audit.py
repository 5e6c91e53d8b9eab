"""`verify` names each index entry that is missing, and each that has no record."""

from collections.abc import Iterator

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested
from outlast.core.group import NewGroup
from outlast.core.job import Slot
from outlast.store.contract import Store
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Key, Value, Write
from outlast.store.keyvalue.repositories.record_shapes import FAMILIES, SHAPES
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    SECOND,
    job_of,
    make_worker,
    new_id,
    put,
    settle,
    started,
)
from outlast.testing.conformance.transfer_rows import furnish
from outlast.verify import verify
from support.engines.memory import MemoryEngine

DATA = {
    key_layout.ARTIFACTS: "a run has some or none",
    "record#": "a document",
    key_layout.SLOT: "a slot that was answered without a job",
    key_layout.QUEUE: "a queue without settings has the defaults",
    key_layout.WORKER: "a worker registers again",
    key_layout.GROUP: "a group without members",
    key_layout.LOG: "a run logged something or nothing",
    "counter": "numbers go on where the rows end",
    "outlast": "the version of the records, which the next process writes again",
}
"""Kinds of records that no other record refers to, or that need not exist; and why."""

ELSEWHERE = {
    key_layout.PENDING: "an intent is completed before anything is read",
    key_layout.QUARANTINE: "tests/store/test_keyvalue_quarantine*",
    key_layout.LOCK: "held by living processes",
    key_layout.LIVENESS: "held by living processes",
    key_layout.EARLY_FIELDS: "only while a store is filled",
    key_layout.EVENT_COUNTER: "in place of the counter, where there are shards",
    "places": "pages of a plan that its intent lists",
}
"""Kinds of records that a store at rest does not have; and where they are tested, or why not."""


def kind_of(part: str) -> str:
    """The part, or its beginning for one that goes on with a name."""
    return f"{part.partition('#')[0]}#" if "#" in part else part


def one_of_each(engine: MemoryEngine) -> list[tuple[Key, Value]]:
    """One record of each kind and of each set of fields."""
    found = sorted(engine.everything().items(), reverse=True)
    return list({(kind_of(k.part), frozenset(v)): (k, v) for k, v in found}.values())


@pytest.fixture
async def engine() -> MemoryEngine:
    engine, clock = MemoryEngine(), FakeClock()
    store = KeyValueStore(engine, clock=clock)
    await store.open()
    await _empty_a_group(store)
    await furnish(store, clock)
    await _furnish_more(store, clock)
    await store.close()
    return engine


async def _furnish_more(store: Store, clock: FakeClock) -> None:
    """What lasts only while something runs, waits or is left half made."""
    await started(store, queue="runs")
    slot = Slot(series="s", at=clock.now())
    await started(store, queue="single", delivery=Delivery.ONCE, slot=slot, name="single")
    await put(store, queue="hurried", start_within=HOUR)
    await put(store, queue="long", params=f'"{"x" * 5_000}"')
    await store.add_group(NewGroup(id=new_id(), total=1))  # never sealed
    await store.register_worker(make_worker())
    clock.advance(SECOND)


async def _empty_a_group(store: Store) -> None:
    emptied = NewGroup(id=new_id(), total=1)
    await store.add_group(emptied)
    member = await put(store, queue="emptied", group_id=emptied.id, member=True)
    await store.stop_group(emptied.id, reason=None)
    await settle(store, await job_of(store, member), CancelRequested())
    await store.mark_groups_closed(limit=9)


async def test_the_world_has_every_kind_of_record(engine: MemoryEngine) -> None:
    kinds = {kind_of(key.part) for key in engine.everything()}

    known = {kind_of(part) for part in (*SHAPES, *FAMILIES)}

    assert known - kinds <= set(ELSEWHERE)
    assert {*_parts_of_the_layout()} - kinds <= set(ELSEWHERE)


def _parts_of_the_layout() -> Iterator[str]:
    for name, value in vars(key_layout).items():
        if name.isupper() and name not in ("ONLY", "NO_JOB"):
            if isinstance(value, Key):
                yield value.part
            elif isinstance(value, str):
                yield value


async def test_each_missing_entry_is_named(engine: MemoryEngine) -> None:
    """Whatever kind is added later: it is found, or listed above with the reason."""
    store = KeyValueStore(engine, clock=FakeClock())
    await store.open()
    assert (await verify(store)).is_sound
    unnoticed = set()

    for key, value in one_of_each(engine):
        if kind_of(key.part) in DATA:
            continue
        await engine.transact({}, [Write(key, None)])
        if (await verify(store)).is_sound:
            unnoticed.add(key)
        await engine.transact({}, [Write(key, value)])

    assert not unnoticed
    assert (await verify(store)).is_sound


async def test_each_entry_without_its_record_is_named(engine: MemoryEngine) -> None:
    """Of the kinds that a reader pages through: the others are found by their record alone."""
    store = KeyValueStore(engine, clock=FakeClock())
    await store.open()
    unnoticed = set()

    for key, value in one_of_each(engine):
        if kind_of(key.part) in PAGED:
            surplus = _beside(engine, key)
            await engine.transact({}, [Write(surplus, {**value, **_elsewhere(value)})])
            if (await verify(store)).is_sound:
                unnoticed.add(surplus)
            await engine.transact({}, [Write(surplus, None)])

    assert not unnoticed
    assert (await verify(store)).is_sound


PAGED = {
    *(key_layout.READY, key_layout.LATER, key_layout.OPEN, key_layout.DUE, key_layout.DEADLINE),
    *(key_layout.ENDED, key_layout.SEQ, key_layout.EVENT, key_layout.STREAM, key_layout.ONCE),
    *("closing", "filling", "emptied"),
}


def _beside(engine: MemoryEngine, key: Key) -> Key:
    """A key of the same form that is not there."""
    others = (Key(key.part, key.sort[:-1] + digit) for digit in "0123456789abcdef")
    return next(other for other in others if other not in engine.everything())


def _elsewhere(value: Value) -> Value:
    """Name a job, a group or an event that is not there."""
    missing = {"id": 999_999 if isinstance(value.get("id"), int) else new_id(), "seq": 999_999}
    missing |= {"job_id": new_id()}
    return {name: each for name, each in missing.items() if name in value}

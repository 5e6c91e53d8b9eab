"""Intents larger than a record, and intents that cannot be completed."""

import logging
from collections.abc import Sequence

import pytest

from outlast.core.audit.violation import ViolationCode
from outlast.core.event import Failed, Snoozed
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, Slot
from outlast.store.contract.transfer import TableKind
from outlast.store.keyvalue import intents, key_layout
from outlast.store.keyvalue.engine import Key, KeyRange, Value, Write
from outlast.store.keyvalue.operations.transfer_delete import drop
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SECOND,
    SUCCEEDED,
    claim_order,
    ended,
    make_job,
    put,
    settle,
    started,
    take,
    take_many,
)
from outlast.testing.conformance.reservations import make_reservation
from outlast.testing.stores import ids_for_test
from outlast.verify import verify
from support.engines.memory import MemoryEngine

UNKNOWN = Key(key_layout.PENDING, "a")
LATER = Key(key_layout.PENDING, "b")


class _Killed(BaseException):
    """The process is killed before a transaction."""


def _engine() -> MemoryEngine:
    return MemoryEngine(most_writes=10, most_record_bytes=3_000)


async def _opened(engine: MemoryEngine, clock: FakeClock | None = None) -> KeyValueStore:
    clock = clock or FakeClock()
    store = KeyValueStore(engine, clock=clock, ids=ids_for_test(clock))
    await store.open()
    return store


async def test_store_with_an_intent_that_cannot_be_completed_opens_and_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = MemoryEngine()
    await put(await _opened(engine))
    await engine.transact(
        {},
        [
            Write(UNKNOWN, {"kind": "of a newer version"}),
            Write(LATER, {"kind": intents.WRITES, "writes": [["due", "late", {"id": "x"}]]}),
        ],
    )

    with caplog.at_level(logging.WARNING, logger="outlast.store"):
        store = await _opened(engine)
        ids = await claim_order(store)

    assert len(ids) == 1
    assert await engine.get([LATER]) == [None]
    assert (await engine.get([Key("due", "late")]))[0] is not None
    await engine.transact({}, [Write(Key("due", "late"), None)])
    [violation] = (await verify(store)).violations
    assert (violation.code, violation.rows) == (ViolationCode.UNFINISHED_INTENT, ("pending a",))
    assert any("operation a is written in part" in each for each in await store.health_warnings())
    assert len([each for each in caplog.records if "intent" in each.message]) == 1


async def _with_history(store: KeyValueStore, clock: FakeClock) -> tuple[JobId, int]:
    claim = await started(store)
    for _ in range(20):
        await settle(store, claim, Snoozed(SECOND))
        clock.advance(SECOND)
        claim = await take(store)
    assert await settle(store, claim, SUCCEEDED)
    [job] = await store.get([claim.id])
    assert job is not None
    return job.id, job.seq


async def test_intent_larger_than_a_record_survives_a_kill_at_any_step() -> None:
    clock, whole = FakeClock(), _engine()
    store = await _opened(whole, clock)
    job_id, seq = await _with_history(store, clock)
    records = whole.everything()
    steps = _count(whole)
    await _drop(store, seq)
    pages = [each for each in steps if each.part == intents.PAGES]
    assert len(pages) > 1

    for step in range(len(steps)):
        engine = _restored(records)
        killed = await _opened(engine, clock)
        _kill_before(engine, step)
        with pytest.raises(_Killed):
            await _drop(killed, seq)
        engine.before = lambda _: None
        after = await _opened(engine, clock)

        assert (await verify(after)).violations == (), step
        await _drop(after, seq)
        await after.prune(older_than=HOUR, limit=MANY)
        assert await after.get([job_id]) == [None]
        assert await engine.range(KeyRange(intents.PAGES), limit=MANY) == [], step
        assert await engine.range(KeyRange(key_layout.STREAM), limit=MANY) == [], step


async def test_intent_without_its_page_is_named_and_its_job_is_verified() -> None:
    clock, engine = FakeClock(), _engine()
    store = await _opened(engine, clock)
    job_id = await put(store)
    [entry] = await engine.range(KeyRange(key_layout.JOB), limit=1)
    intent = Key(key_layout.PENDING, f"{intents.WRITES}#{entry.key.sort}")
    await engine.transact(
        {},
        [
            Write(entry.key, {**entry.value, "pending": intent.sort}),
            Write(intent, {"kind": intents.WRITES, "writes": [], "pages": ["lost"]}),
        ],
    )

    report = await verify(await _opened(engine, clock))

    assert [each.code for each in report.violations] == [ViolationCode.UNFINISHED_INTENT]
    assert (report.jobs, report.violations[0].rows) == (1, (f"pending {intent.sort}",))
    assert job_id in intent.sort


async def _drop(store: KeyValueStore, seq: int) -> None:
    """Delete the job in one unit of work, as a transfer does."""
    await drop(store._context, TableKind.JOBS, {"seq": seq})


def _count(engine: MemoryEngine) -> list[Key]:
    """Return the list to which each transaction adds the first key that it writes."""
    steps: list[Key] = []
    engine.before = lambda writes: steps.append(writes[0].key)
    return steps


def _restored(records: dict[Key, Value]) -> MemoryEngine:
    engine = _engine()
    for key, value in records.items():
        engine._write(key, value)
    return engine


def _kill_before(engine: MemoryEngine, step: int) -> None:
    left = iter(range(step))

    def before(_: Sequence[Write]) -> None:
        if next(left, None) is None:
            raise _Killed

    engine.before = before


async def test_reservation_that_is_written_late_is_known_to_the_next_call() -> None:
    """Its queue and its job are written first, if one transaction does not take all."""
    engine = MemoryEngine(most_writes=10)
    store, other = await _opened(engine), await _opened(engine)
    keys = {"key": DedupeKey(key="k"), "active_key": "a", "slot": Slot(series="s", at=START)}
    dead = await ended(store, Failed("it broke"), max_attempts=1, queue="lane")
    new, job = make_reservation(), make_job(retry_of=dead, **keys)

    def kill_later(writes: Sequence[Write]) -> None:
        if any(write.key.part == key_layout.PENDING and write.value is None for write in writes):
            raise _Killed

    engine.before = kill_later
    with pytest.raises(_Killed):
        await store.reserve(new, job)
    engine.before = lambda _: None

    reserved = await other.reserve(make_reservation(), make_job())

    assert reserved.reservation is not None
    assert (reserved.created, reserved.reservation.id) == (False, new.id)
    assert [claim.id for claim in await take_many(other)] == [job.id]
    assert (await verify(other)).is_sound

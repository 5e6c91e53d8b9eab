"""Records edited by hand: damaged ones are set aside and named, and their neighbours run on."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.audit.violation import ViolationCode
from outlast.core.ids import Ids
from outlast.core.job import DedupeKey
from outlast.core.state import State
from outlast.errors import JobNotFound, StoreCorrupt
from outlast.jobs.completion import find
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.contract.transfer import TableKind
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Key, KeyRange
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    MANY,
    SUCCEEDED,
    claim_order,
    ended,
    job_of,
    make_job,
    put,
    settle,
    take,
    take_many,
)
from outlast.testing.stores import ids_for_test
from outlast.verify import verify
from support.engines.hands import Hand, MemoryHand
from support.engines.memory import MemoryEngine

MINUTE = timedelta(minutes=1)
ABANDONED = timedelta(hours=1)

DAMAGES: dict[str, dict[str, Any]] = {
    "lock_expires_at": {"lock_expires_at": 4_070_908_800},
    "priority": {"priority": "high"},
    "token": {"token": None},
    "delivery": {"delivery": None},
    "another delivery": {"delivery": "twice"},
    "scheduled_for": {"scheduled_for": "2026-01-05T10:00:00.000000Z"},
    "no offset": {"scheduled_for": "2026-01-05T09:00:00"},
    "payload": {"payload": 7},
    "status": {"status": "cancelled"},
    "job_id": {"job_id": "another"},
    "lease": {"lease_at": 5},
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids(clock: FakeClock) -> Ids:
    return ids_for_test(clock)


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(most_writes=10)


@pytest.fixture
def hand(engine: MemoryEngine) -> Hand:
    return MemoryHand(engine)


@pytest.fixture
async def store(engine: MemoryEngine, clock: FakeClock, ids: Ids) -> AsyncIterator[KeyValueStore]:
    keyvalue = KeyValueStore(engine, clock=clock, ids=ids)
    await keyvalue.open()
    yield keyvalue
    await keyvalue.close()


async def _named(store: KeyValueStore) -> list[tuple[str, str]]:
    """Return the damaged records that `verify` names: record and reason."""
    found = (await verify(store)).violations
    return [(each.rows[0], each.what) for each in found if each.code is ViolationCode.QUARANTINED]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("concurrency", [None, 1])
async def test_a_damaged_job_is_named_and_its_neighbours_run(
    store: KeyValueStore, hand: Hand, damage: dict[str, Any], concurrency: int | None
) -> None:
    await store.set_queue(Queue(name="default", concurrency=concurrency))
    first, second = [await put(store) for _ in range(2)]
    await hand.edit_job(first, **damage)

    claim = await take(store)
    await settle(store, claim, SUCCEEDED)
    later = await take_many(store)

    assert (claim.id, later) == (second, [])
    [(record, what)] = await _named(store)
    assert record.endswith(first)
    assert next(iter(damage)) in what
    assert [job.id for job in await store.find(Filter(), limit=MANY)] == [second]
    assert dict(await store.counts()) == {("default", State.SUCCEEDED): 1}
    with pytest.raises(JobNotFound, match=rf"{first} is quarantined: .*{next(iter(damage))}"):
        await find(store, first)
    [warning] = [each for each in await store.health_warnings() if "quarantined" in each]
    assert f"job {first}: " in warning


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_corrected_job_works_again(
    store: KeyValueStore, hand: Hand, damage: dict[str, Any]
) -> None:
    job_id = await put(store)
    before = await hand.job(job_id)
    await hand.edit_job(job_id, **damage)
    assert await take_many(store) == []

    await hand.edit_job(job_id, **{name: before.get(name) for name in damage})
    await store.maintenance_due(abandoned=ABANDONED)

    claim = await take(store)
    assert (claim.id, claim.token) == (job_id, 1)
    assert await _named(store) == []
    assert (await verify(store)).is_sound


async def test_more_damaged_jobs_than_one_claim_reads_stop_no_queue(
    store: KeyValueStore, hand: Hand
) -> None:
    damaged = [await put(store) for _ in range(60)]
    sound = await put(store)
    for job_id in damaged:
        await hand.edit_job(job_id, priority="high")

    claim = await take(store)

    assert claim.id == sound


async def test_more_locked_or_deleted_jobs_than_one_claim_tries_stop_no_queue(
    store: KeyValueStore, hand: Hand, clock: FakeClock
) -> None:
    until = key_layout.time_key(clock.now() + HOUR)
    for number in range(50):
        job_id = await put(store)
        if number % 2:
            await hand.edit_job(job_id, lock_expires_at=until)
        else:
            await hand.delete_job(job_id)
    free = await put(store)

    claim = await take(store)

    assert claim.id == free


async def test_a_damaged_job_that_is_due_later_is_not_promoted_and_stops_no_other(
    store: KeyValueStore, hand: Hand, clock: FakeClock
) -> None:
    first, second = [await put(store, at=clock.now() + MINUTE) for _ in range(2)]
    await hand.edit_job(first, scheduled_for=key_layout.time_key(clock.now() + HOUR))
    clock.advance(MINUTE)

    promoted = await store.promote_due(limit=1)

    assert (promoted, await claim_order(store)) == (1, [second])
    clock.advance(2 * HOUR)
    assert await take_many(store) == []
    assert len(await _named(store)) == 1


async def test_a_damaged_running_job_frees_its_queue_and_runs_again_under_the_next_token(
    store: KeyValueStore, hand: Hand, clock: FakeClock
) -> None:
    await store.set_queue(Queue(name="default", concurrency=1))
    first, second = [await put(store) for _ in range(2)]
    claim = await take(store)
    await hand.edit_job(first, attempts="none")
    [renewal] = await store.renew([claim.lease], span=LEASE)
    written = await settle(store, claim, SUCCEEDED)
    clock.advance(2 * LEASE)

    over = await store.expired_leases(limit=10)
    other = await take(store)

    assert (claim.id, other.id) == (first, second)
    assert (renewal.held, written, over) == (False, False, [])
    await settle(store, other, SUCCEEDED)
    await hand.edit_job(first, attempts=0)
    await store.maintenance_due(abandoned=ABANDONED)
    [lost] = await store.expired_leases(limit=10)
    assert (lost.id, lost.token) == (first, 1)


async def test_a_key_of_a_quarantined_job_stays_taken(store: KeyValueStore, hand: Hand) -> None:
    new = make_job(key=DedupeKey(key="a"))
    await store.add([new])
    await hand.edit_job(new.id, priority="high")

    [again] = await store.add([make_job(key=DedupeKey(key="a"))])

    assert (again.created, again.id) == (False, new.id)


async def test_an_edited_priority_is_honoured_after_the_next_look(
    store: KeyValueStore, hand: Hand
) -> None:
    first, second = [await put(store) for _ in range(2)]
    await hand.edit_job(first, priority=-5)

    before = await take(store)
    await store.maintenance_due(abandoned=ABANDONED)
    after = await take(store)

    assert (before.id, after.id) == (second, first)
    assert (await verify(store)).is_sound


async def test_a_time_with_another_offset_is_converted(
    store: KeyValueStore, hand: Hand, clock: FakeClock
) -> None:
    job_id = await put(store)
    await hand.edit_job(job_id, lock_expires_at="2026-01-05T12:00:00+02:00")

    at_first = await take_many(store)  # it is 09:00, and the lock ends at 10:00
    clock.advance(HOUR)
    at_the_end = await take_many(store)
    clock.advance(timedelta(microseconds=1))

    assert (at_first, at_the_end) == ([], [])
    assert [claim.id for claim in await take_many(store)] == [job_id]


async def test_a_queue_whose_record_is_damaged_pauses_and_others_run(
    store: KeyValueStore, hand: Hand
) -> None:
    await store.set_queue(Queue(name="mail", concurrency=1))
    held, free = await put(store, queue="mail"), await put(store)
    await hand.edit(Key(key_layout.QUEUE, "mail"), concurrency="three")

    assert await take_many(store, queue="mail") == []
    assert (await take(store)).id == free
    pause = (await store.queue("mail")).pause
    assert pause is not None
    assert "concurrency" in (pause.reason or "")
    with pytest.raises(StoreCorrupt, match="queue / mail is damaged: concurrency"):
        await store.resume("mail")
    await hand.edit(Key(key_layout.QUEUE, "mail"), concurrency=3)
    assert (await take(store, queue="mail")).id == held


async def test_damaged_records_of_every_part_are_named_and_break_no_read(
    store: KeyValueStore, engine: MemoryEngine, hand: Hand
) -> None:
    await ended(store)
    waiting = await put(store)
    parts = [key_layout.RUN, key_layout.STREAM, key_layout.ENDED, key_layout.SEQ]
    items = [item for part in parts for item in await engine.range(KeyRange(part), limit=MANY)]
    for item in items:
        await hand.edit(item.key, **dict.fromkeys(item.value, True))

    named = {record for record, _ in await _named(store)}

    assert named >= {f"{item.key.part} / {item.key.sort}" for item in items}
    assert await store.find(Filter(), limit=MANY) == []
    assert await store.stream(limit=MANY) == []
    assert (await take(store)).id == waiting


async def test_items_with_the_fields_of_s2_alone_are_counted_and_left_alone(
    store: KeyValueStore, engine: MemoryEngine, hand: Hand
) -> None:
    own = await put(store)
    foreign = Key("job", "scheduled#2026-01-05T08:00:00+00:00#11111111-1111-4111-8111-111111111111")
    fields = {
        "job_type": "user_sync",
        "payload": {"user": "ada"},
        "scheduled_for": "2026-01-05T08:00:00+00:00",
        "status": "pending",
        "attempts": 0,
        "created_at": "2026-01-05T08:00:00+00:00",
    }
    await hand.write(foreign, fields)

    claims = await take_many(store)

    assert [claim.id for claim in claims] == [own]
    assert (await verify(store)).is_sound
    [warning] = [each for each in await store.health_warnings() if "not written by" in each]
    assert warning.startswith("1 job items")
    [item] = await engine.get([foreign])
    assert item is not None
    assert item.value == fields


async def test_a_quarantined_job_is_not_lost_by_a_transfer(
    store: KeyValueStore, hand: Hand
) -> None:
    job_id = await put(store)
    await hand.edit_job(job_id, priority="high")

    with pytest.raises(StoreCorrupt, match=f"{job_id} is damaged: priority"):
        await store.dump(TableKind.JOBS, limit=MANY)


async def test_history_of_a_corrected_job_is_as_before(store: KeyValueStore, hand: Hand) -> None:
    job_id = await ended(store)
    before = await job_of(store, job_id)
    await hand.edit_job(job_id, token="one")  # noqa: S106 - a number is wanted
    assert await store.get([job_id]) == [None]

    await hand.edit_job(job_id, token=1)

    assert await job_of(store, job_id) == before

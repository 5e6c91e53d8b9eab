"""Floors: a worker that finds only remains at the head of a queue begins behind them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from outlast.core.delivery import Delivery
from outlast.store.contract.queues import Queue
from outlast.store.postgres.operations.scan_floor import (
    FULL_SCAN_INTERVAL,
    TIMELESS,
    ClaimScan,
    Pace,
    ScanFloors,
)
from outlast.store.postgres.store import PostgresStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import TYPE, make_holder, make_job
from support.postgres.clock import DatabaseClock

SLOW = ClaimScan([b"\x01"], 0.05, 0.06, was_full=True)
QUICK = ClaimScan((), 0.001, 0.005, was_full=True)
BUSY = ClaimScan([b"\x01"], 0.02, 0.2, was_full=True)  # all of it took long
TYPES = ["a"]
ALWAYS_SLOW = Pace(seconds=0, share=0)


class Seconds:
    """A clock that stands until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def floors(seconds: Seconds) -> ScanFloors:
    return ScanFloors(seconds, Pace())


def test_one_slow_look_is_chance_and_two_are_not(floors: ScanFloors) -> None:
    floors.learn("q", TYPES, SLOW)
    assert floors.of("q", TYPES) == [b""]

    floors.learn("q", TYPES, SLOW)
    assert floors.of("q", TYPES) == [b"\x01"]
    assert floors.of("other", TYPES) == [b""]


@pytest.mark.parametrize("look", [QUICK, BUSY])
def test_machine_that_is_merely_busy_sets_no_floor(floors: ScanFloors, look: ClaimScan) -> None:
    for _ in range(3):
        floors.learn("q", TYPES, look)

    assert floors.of("q", TYPES) == [b""]


def test_floor_holds_for_ten_times_the_full_look(floors: ScanFloors, seconds: Seconds) -> None:
    for _ in range(2):
        floors.learn("q", TYPES, SLOW)

    seconds.now += FULL_SCAN_INTERVAL * SLOW.scan_seconds - 0.001
    assert floors.of("q", TYPES) == [b"\x01"]
    seconds.now += 0.002
    assert floors.of("q", TYPES) == [b""]


def test_floor_rises_and_never_falls(floors: ScanFloors) -> None:
    for _ in range(2):
        floors.learn("q", TYPES, SLOW)

    floors.learn("q", TYPES, ClaimScan([b"\x05"], 0.005, 0.01, was_full=False))
    floors.learn("q", TYPES, ClaimScan([b"\x03"], 0.005, 0.01, was_full=False))
    floors.learn("q", TYPES, ClaimScan([None], 0.005, 0.01, was_full=False))

    assert floors.of("q", TYPES) == [b"\x05"]


def test_quick_full_look_ends_it(floors: ScanFloors, seconds: Seconds) -> None:
    for _ in range(2):
        floors.learn("q", TYPES, SLOW)
    seconds.now += 60

    floors.learn("q", TYPES, QUICK)
    floors.learn("q", TYPES, SLOW)

    assert floors.of("q", TYPES) == [b""]


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    await store.open()
    yield store
    await store.close()


async def take(store: PostgresStore, **over: int) -> list[str]:
    asked = {"queue": "default", "limit": 10, "lease": timedelta(minutes=1), **over}
    claims = await store.claim(make_holder(), types=[TYPE], **asked)  # type: ignore[arg-type]
    return [claim.id for claim in claims]


@pytest.fixture
async def jobs(store: PostgresStore, seconds: Seconds) -> list[str]:
    """Three in their order; the floor is at the second, until the clock is moved."""
    due = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    added = await store.add([make_job(at=at) for at in due])
    floor = await _place(store, added[1].id)
    store._pool.floors = ScanFloors(seconds, Pace())
    for _ in range(2):
        store._pool.floors.learn("default", [TYPE], ClaimScan([floor], 0.05, 0.05, was_full=True))
    return [each.id for each in added]


async def _place(store: PostgresStore, job_id: str) -> bytes:
    async with store._pool.connection("claim").acquire() as lane:
        table = f'"{store.address.schema}".waiting'
        asked = f"SELECT claim_order FROM {table} WHERE job = $1"  # noqa: S608 - a name of ours
        return bytes(await lane.connection.fetchval(asked, job_id))


async def test_what_is_below_the_floor_comes_late_and_is_not_lost(
    store: PostgresStore, jobs: list[str], seconds: Seconds
) -> None:
    assert await take(store) == jobs[2:]

    seconds.now += 60

    assert await take(store) == jobs[:2]


async def test_job_of_a_higher_priority_is_seen_at_once(
    store: PostgresStore, jobs: list[str]
) -> None:
    [urgent] = await store.add([make_job(priority=1)])

    assert await take(store) == [urgent.id, jobs[2]]


async def test_queue_with_a_limit_has_no_floor(store: PostgresStore, jobs: list[str]) -> None:
    await store.set_queue(Queue(name="default", concurrency=2))

    assert await take(store) == jobs[:2]


async def test_who_only_looks_ahead_learns_of_remains_too(
    store: PostgresStore, seconds: Seconds
) -> None:
    store._pool.prefetch_floors = ScanFloors(seconds, ALWAYS_SLOW)
    [chain] = await store.add([make_job(delivery=Delivery.LINKED)])
    added = [each.id for each in await store.add([make_job() for _ in range(10)])]
    places = [await _place(store, job_id) for job_id in added]

    assert await take(store, limit=0, prefetch=1) == added[:1]
    assert store._pool.prefetch_floors.of("default", [TYPE]) == [b""], "one slow look may be chance"
    assert await take(store, limit=0, prefetch=1) == added[1:2]
    assert store._pool.prefetch_floors.of("default", [TYPE]) == [places[1]]
    assert await take(store, limit=0, prefetch=1) == added[2:3]
    assert store._pool.prefetch_floors.of("default", [TYPE]) == [places[2]], "the floor rises"

    assert await take(store, limit=0, prefetch=50) == added[3:]
    assert await take(store) == [chain.id], "what is not prefetched waits for no floor"


async def test_look_that_is_not_slow_says_nothing_of_its_place(
    store: PostgresStore, seconds: Seconds
) -> None:
    store._pool.prefetch_floors = ScanFloors(seconds, TIMELESS)
    added = [each.id for each in await store.add([make_job() for _ in range(3)])]

    for job_id in added:
        assert await take(store, limit=0, prefetch=1) == [job_id]
        assert store._pool.prefetch_floors.of("default", [TYPE]) == [b""]


async def test_server_measures_the_look_and_the_whole_claim(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[ClaimScan] = []
    monkeypatch.setattr(
        store._pool.prefetch_floors, "learn", lambda _queue, _types, look: looks.append(look)
    )
    await store.add([make_job()])

    await take(store, limit=0, prefetch=1)

    assert 0 < looks[-1].scan_seconds <= looks[-1].total_seconds


async def test_store_on_a_test_clock_finds_no_look_slow(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, clock=DatabaseClock(FakeClock()))
    await store.open()
    try:
        assert store._pool.floors.pace == store._pool.prefetch_floors.pace == TIMELESS
    finally:
        await store.close()

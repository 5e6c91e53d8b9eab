"""Floors: a worker that finds only remains at the head of a queue begins behind them."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from outlast.core.delivery import Delivery
from outlast.store.contract.queues import Queue
from outlast.store.postgres.operations.scan_floor import SPARING, ClaimScan, ScanFloors
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import TYPE, make_holder, make_job

SLOW = ClaimScan([b"\x01"], 0.05, 0.06, was_full=True)
QUICK = ClaimScan((), 0.001, 0.005, was_full=True)
BUSY = ClaimScan([b"\x01"], 0.02, 0.2, was_full=True)  # all of it took long
TYPES = ["a"]
REMAINS = 40_000
"""Rows to be gone through, in more than the four milliseconds that count as slow."""


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
    return ScanFloors(seconds)


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

    seconds.now += SPARING * SLOW.looked - 0.001
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
    store._lines.floors = ScanFloors(seconds)
    for _ in range(2):
        store._lines.floors.learn("default", [TYPE], ClaimScan([floor], 0.05, 0.05, was_full=True))
    return [each.id for each in added]


async def _place(store: PostgresStore, job_id: str) -> bytes:
    async with store._lines.line("claim").acquire() as lane:
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
    store._lines.ahead = ScanFloors(seconds)
    table = f'"{store.address.schema}".waiting'
    onlooker = await asyncpg.connect(store.address.dsn)
    try:
        async with onlooker.transaction(isolation="repeatable_read"):
            await onlooker.execute("SELECT 1")  # from now on nothing that is deleted goes away
            await store.add([make_job() for _ in range(REMAINS)])
            async with store._lines.line("claim").acquire() as lane:
                await lane.connection.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of ours
            [chain] = await store.add([make_job(delivery=Delivery.CHAIN)])
            added = [each.id for each in await store.add([make_job() for _ in range(50)])]

            taken: list[str] = []
            while not any(store._lines.ahead.of("default", [TYPE])) and len(taken) < len(added):
                taken += await take(store, limit=0, prefetch=1)  # two slow looks in a row do it

            assert len(taken) < len(added), "it has learnt nothing"
            assert taken + await take(store, limit=0, prefetch=50) == added
            assert await take(store) == [chain.id], "what is not prefetched waits for no floor"
    finally:
        await onlooker.close()

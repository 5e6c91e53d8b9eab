"""What a job costs does not grow with what waits, what is done, or what others do.

Counted in steps of SQLite's virtual machine, which are the same on a busy machine.
"""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from outlast.core.decide import decide
from outlast.core.delivery import Delivery
from outlast.core.event import Event, Failed, Moved
from outlast.core.ordering import Ordering
from outlast.core.position import Anchor, MoveTo
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.sqlite import reader
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    SUCCEEDED,
    make_job,
    new_id,
    take_many,
)

from .sqlite_helpers import Make, Worlds, opened, reading, writing

pytestmark = pytest.mark.xdist_group("sqlite_growth")
"""One after the other, so that each crowd is made once."""

FEW, CROWD, BATCH = 100, 20_000, 10
EVERY = 10
"""Steps between two counts."""
TOLERANCE = 1.25


async def few(store: SqliteStore, **over: Any) -> None:
    await store.add([make_job(**over) for _ in range(FEW)])


async def many_waiting(store: SqliteStore, **over: Any) -> None:
    await store.add([make_job(**over) for _ in range(CROWD)])


async def many_for_later(store: SqliteStore) -> None:
    await many_waiting(store, delay=HOUR)
    await few(store)


async def many_done(store: SqliteStore) -> None:
    await many_waiting(store)
    await _finish(store, CROWD)
    await few(store)


async def many_of_unknown_type_ahead(store: SqliteStore) -> None:
    await many_waiting(store, type="unknown", priority=9)
    await few(store)


async def few_done(store: SqliteStore) -> None:
    await few(store)
    await _finish(store, FEW)


async def few_placed(store: SqliteStore) -> None:
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION))
    await few(store)


async def many_placed(store: SqliteStore) -> None:
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION))
    await many_waiting(store)


CROWDS: list[Make] = [
    many_waiting,
    many_for_later,
    many_done,
    many_of_unknown_type_ahead,
]


@pytest.fixture(autouse=True)
def _one_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "THREADS", 1)  # so that its steps are all the steps


@pytest.fixture
def small(worlds: Worlds) -> Path:
    return worlds.copy(few)


@pytest.fixture(params=CROWDS, ids=lambda make: make.__name__)
def large(worlds: Worlds, request: pytest.FixtureRequest) -> Path:
    return worlds.copy(request.param)


class Counter:
    """Counts a connection's steps."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.steps = 0
        connection.set_progress_handler(self._tick, EVERY)

    def _tick(self) -> None:
        self.steps += EVERY


async def _finish(store: SqliteStore, count: int, event: Event = SUCCEEDED) -> None:
    claims = await take_many(store, limit=count)
    assert len(claims) == count
    await store.apply([decide(claim, event, new_id=new_id) for claim in claims])


async def _written(path: Path, act: Make) -> int:
    """How many steps the writer takes for it."""
    async with opened(path, clock=FakeClock()) as store:
        counter = Counter(writing(store))
        await act(store)
    return counter.steps


async def _read(path: Path, act: Make) -> int:
    """How many steps the reader takes for it."""
    async with opened(path, clock=FakeClock()) as store:
        await act(store)
        counter = Counter(reading(store)[0])
        await act(store)
    return counter.steps


async def test_claim_and_finish_cost_the_same_in_any_crowd(small: Path, large: Path) -> None:
    async def act(store: SqliteStore) -> None:
        await _finish(store, BATCH)

    alone, crowded = await _written(small, act), await _written(large, act)

    assert crowded <= alone * TOLERANCE


async def test_claim_and_retry_cost_the_same_in_any_crowd(small: Path, large: Path) -> None:
    async def act(store: SqliteStore) -> None:
        await _finish(store, BATCH, Failed("it broke", HOUR))

    alone, crowded = await _written(small, act), await _written(large, act)

    assert crowded <= alone * TOLERANCE


async def test_enqueue_and_chain_cost_the_same_in_any_crowd(small: Path, large: Path) -> None:
    async def act(store: SqliteStore) -> None:
        chain = {"delivery": Delivery.LINKED, "priority": 10}
        await store.add([make_job(active_key=str(n), **chain) for n in range(BATCH)])
        await _finish(store, BATCH, Failed("it broke"))

    alone, crowded = await _written(small, act), await _written(large, act)

    assert crowded <= alone * TOLERANCE


async def test_looking_at_one_job_costs_the_same_in_any_crowd(small: Path, large: Path) -> None:
    async def act(store: SqliteStore) -> None:
        [job] = await store.find(Filter(), limit=1)
        await store.runs(job.id)
        await store.events(job.id)
        await store.chain(job.id)
        await store.get([job.id])

    alone, crowded = await _read(small, act), await _read(large, act)

    assert crowded <= alone * TOLERANCE


async def test_peeking_costs_the_same_in_any_crowd(small: Path, large: Path) -> None:
    async def act(store: SqliteStore) -> None:
        await store.peek("default", limit=BATCH)

    alone, crowded = await _read(small, act), await _read(large, act)

    assert crowded <= alone * 2  # one more type may have to be looked at


async def test_enqueue_in_a_position_queue_costs_the_same_however_many_wait(
    worlds: Worlds,
) -> None:
    async def act(store: SqliteStore) -> None:
        await store.add([make_job() for _ in range(BATCH)])

    alone = await _written(worlds.copy(few_placed), act)
    crowded = await _written(worlds.copy(many_placed), act)

    assert crowded <= alone * TOLERANCE


@pytest.mark.parametrize("where", Anchor)
async def test_move_in_a_position_queue_costs_the_same_however_many_wait(
    worlds: Worlds, where: Anchor
) -> None:
    async def act(store: SqliteStore) -> None:
        *_, target, other, moved = await store.peek("default", limit=FEW // 2)
        for job in (moved, other):
            to = MoveTo(where, None if where in (Anchor.FRONT, Anchor.BACK) else target.id)
            assert await store.apply([decide(job, Moved(to), new_id=new_id)]) == [True]

    alone = await _written(worlds.copy(few_placed), act)
    crowded = await _written(worlds.copy(many_placed), act)

    assert crowded <= alone * TOLERANCE


@pytest.mark.parametrize("where", [Anchor.BEFORE, Anchor.SWAP])
async def test_move_near_the_front_costs_the_same_in_any_crowd(
    small: Path, large: Path, where: Anchor
) -> None:
    async def act(store: SqliteStore) -> None:
        jobs = await store.peek("default", limit=FEW)
        line = [job for job in jobs if job.priority == jobs[0].priority]
        to = Moved(MoveTo(where, line[5].id))
        assert await store.apply([decide(line[9], to, new_id=new_id)]) == [True]

    alone, crowded = await _written(small, act), await _written(large, act)

    assert crowded <= alone * 1.5  # one more type may have to be looked at


async def test_pruning_costs_the_same_however_much_is_done(worlds: Worlds) -> None:
    async def act(store: SqliteStore) -> None:
        clock = store._clock
        assert isinstance(clock, FakeClock)
        clock.advance(HOUR)
        assert await store.prune(older_than=HOUR / 2, limit=BATCH) == BATCH

    alone = await _written(worlds.copy(few_done), act)
    crowded = await _written(worlds.copy(many_done), act)

    assert crowded <= alone * TOLERANCE


async def test_renewal_costs_the_same_for_each_lease_however_many(tmp_path: Path) -> None:
    async def renew(count: int) -> float:
        async with opened(tmp_path / f"{count}.db", clock=FakeClock()) as store:
            await store.add([make_job() for _ in range(count)])
            leases = [claim.lease for claim in await take_many(store, limit=count)]
            counter = Counter(writing(store))
            await store.renew(leases, span=LEASE)
        return counter.steps / count

    alone, crowded = await renew(20), await renew(200)

    assert crowded <= alone * TOLERANCE


async def test_once_jobs_of_one_name_cost_no_more_than_in_proportion(tmp_path: Path) -> None:
    async def claim(count: int) -> float:
        async with opened(tmp_path / f"{count}.db", clock=FakeClock()) as store:
            once = [make_job(delivery=Delivery.ONCE, priority=n) for n in range(count)]
            await store.add(once)
            counter = Counter(writing(store))
            await take_many(store, limit=BATCH)
        return counter.steps / count

    alone, crowded = await claim(50), await claim(500)

    assert crowded <= alone * TOLERANCE

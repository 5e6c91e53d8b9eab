"""A wall clock that is set ahead deletes no history, skips no job and stops no group at once."""

from datetime import timedelta

import pytest

from outlast.core.group import NewGroup
from outlast.core.state import State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import ended, job_of, new_id, put, take
from outlast.worker.maintenance.clock_watch import HOLD_BACK, MAX_STEP
from outlast.worker.maintenance.loop import Maintenance

YEAR = timedelta(days=365)
MONTH = timedelta(days=30)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def store(path, clock):
    store = SqliteStore(path, clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def world(store):
    """A job of the past, one that must start within a minute, and a group that is being filled."""
    past = await ended(store)
    urgent = await put(store, start_within=timedelta(minutes=1))
    group = new_id()
    await store.add_group(NewGroup(id=group, total=2))
    return past, urgent, group


async def maintain(maintenance):
    """One round of all that maintenance does; how much it deleted and skipped."""
    return (await maintenance.prune_once(MONTH, 100) or 0, (await maintenance.run_once()).misfired)


async def is_stopped(store, group):
    return (await store.group(group)).closing is not None


async def test_a_clock_set_ahead_and_right_again_costs_nothing(store, clock, world):
    past, urgent, group = world
    maintenance, right = Maintenance(store, new_id, clock=clock), clock.now()

    clock.set_wall(right + YEAR)
    ahead = [await maintain(maintenance) for _ in range(3)]
    clock.set_wall(right)
    after = await maintain(maintenance)

    assert [*ahead, after] == [(0, 0)] * 4
    assert (await job_of(store, past)).state is State.SUCCEEDED
    assert not await is_stopped(store, group)
    assert (await take(store)).id == urgent


async def test_a_clock_that_stays_ahead_is_believed_after_a_while(store, clock, world):
    *_, group = world
    maintenance = Maintenance(store, new_id, clock=clock)
    clock.set_wall(clock.now() + YEAR)
    at_once = await maintain(maintenance)
    clock.advance(HOLD_BACK - timedelta(seconds=1))
    too_soon = await maintain(maintenance)

    clock.advance(timedelta(seconds=1))

    assert (at_once, too_soon) == ((0, 0), (0, 0))
    assert await maintain(maintenance) == (1, 1)
    assert await is_stopped(store, group)


async def test_each_further_step_ahead_holds_back_anew(store, clock, world):
    maintenance = Maintenance(store, new_id, clock=clock)
    for _ in range(3):
        clock.set_wall(clock.now() + YEAR)
        assert await maintain(maintenance) == (0, 0)
        clock.advance(HOLD_BACK / 2)


@pytest.mark.parametrize("step", [MAX_STEP, -YEAR], ids=["small", "back"])
async def test_a_small_step_or_one_back_holds_nothing_back(store, clock, world, step):
    maintenance = Maintenance(store, new_id, clock=clock)
    clock.advance(YEAR + MONTH * 2)

    clock.set_wall(clock.now() + step)

    assert (await maintain(maintenance))[0] == 1

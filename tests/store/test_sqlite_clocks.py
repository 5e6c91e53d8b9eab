"""Leases go by the clock nobody can set, due times by the one on the wall."""

from datetime import timedelta
from pathlib import Path

import pytest

from outlast.core.state import State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LAPSED,
    LEASE,
    MANY,
    SUCCEEDED,
    TICK,
    ended,
    job_of,
    put,
    settle,
    started,
    take_many,
)

from .sqlite_helpers import opened

DAY = timedelta(days=1)


async def _lapsed(store: SqliteStore) -> list[str]:
    return [job.id for job in await store.expired_leases(limit=MANY)]


@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
async def test_wall_clock_set_by_a_day_steals_no_lease_and_loses_none(
    store: SqliteStore, path: Path, clock: FakeClock, jump: timedelta
) -> None:
    claim = await started(store)

    clock.set_wall(clock.now() + jump)
    async with opened(path, clock=clock) as second:
        stolen = [await _lapsed(store), await _lapsed(second)]
        clock.advance(LEASE - TICK)
        early = [await _lapsed(store), await _lapsed(second)]
        clock.advance(TICK)
        in_time = [await _lapsed(store), await _lapsed(second)]

    assert (stolen, early) == ([[], []], [[], []])
    assert in_time == [[claim.id], [claim.id]]


@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])
async def test_lease_renewed_after_the_wall_clock_was_set_lasts_as_long_as_ever(
    store: SqliteStore, clock: FakeClock, jump: timedelta
) -> None:
    claim = await started(store)
    clock.set_wall(clock.now() + jump)

    await store.renew([claim.lease], span=LEASE)
    clock.advance(LEASE - TICK)
    early = await _lapsed(store)
    clock.advance(TICK)

    assert early == []
    assert await _lapsed(store) == [claim.id]


async def test_restart_of_the_machine_lapses_every_lease_however_long(
    path: Path, clock: FakeClock
) -> None:
    clock.advance(DAY)  # the machine has been up longer than it will be soon
    async with opened(path, clock=clock) as store:
        claims = [await started(store) for _ in range(3)]
        await store.renew([claims[1].lease], span=DAY)

    clock.reboot()

    async with opened(path, clock=clock) as store:
        lapsed = await _lapsed(store)
        assert sorted(lapsed) == sorted(claim.id for claim in claims)
        assert await settle(store, claims[1], LAPSED)


async def test_leases_taken_since_the_restart_outlive_the_next_opening(
    path: Path, clock: FakeClock
) -> None:
    clock.reboot()
    async with opened(path, clock=clock) as store:
        claim = await started(store)

        async with opened(path, clock=clock) as second:
            assert await _lapsed(second) == []

        assert await _lapsed(store) == []
        assert await settle(store, claim, SUCCEEDED)


async def test_file_moved_to_another_machine_has_no_living_leases(
    path: Path, clock: FakeClock
) -> None:
    async with opened(path, clock=clock) as store:
        claim = await started(store)
    elsewhere = FakeClock(clock.now())
    elsewhere.reboot()

    async with opened(path, clock=elsewhere) as store:
        assert await _lapsed(store) == [claim.id]


async def test_due_time_follows_the_wall_clock_forward(
    store: SqliteStore, clock: FakeClock
) -> None:
    job_id = await put(store, delay=HOUR)

    clock.set_wall(clock.now() + HOUR)

    assert [claim.id for claim in await take_many(store)] == [job_id]


async def test_due_time_follows_the_wall_clock_back(store: SqliteStore, clock: FakeClock) -> None:
    job_id = await put(store, delay=HOUR)

    clock.set_back(DAY)
    clock.advance(DAY)
    early = await take_many(store)
    clock.advance(HOUR)

    assert early == []
    assert [claim.id for claim in await take_many(store)] == [job_id]


async def test_job_queued_once_stays_queued_when_the_wall_clock_is_set_back(
    path: Path, clock: FakeClock
) -> None:
    async with opened(path, clock=clock) as store:
        job_id = await put(store)
        clock.set_back(DAY)

    async with opened(path, clock=clock) as store:
        assert (await job_of(store, job_id)).state is State.QUEUED
        assert [claim.id for claim in await take_many(store)] == [job_id]


async def test_history_set_back_in_time_is_not_pruned_early(
    store: SqliteStore, clock: FakeClock
) -> None:
    job_id = await ended(store)
    clock.set_back(DAY)

    pruned = await store.prune(older_than=HOUR, limit=MANY)

    assert pruned == 0
    assert (await job_of(store, job_id)).state is State.SUCCEEDED


async def test_order_of_coming_survives_a_wall_clock_set_back(
    store: SqliteStore, clock: FakeClock
) -> None:
    first = await put(store, priority=1)
    clock.set_back(DAY)
    second = await put(store, priority=1)

    seqs = [(await job_of(store, job_id)).seq for job_id in (first, second)]

    assert seqs == sorted(seqs)

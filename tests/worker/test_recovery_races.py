"""Recovery repeated, raced and killed half-way has one outcome."""

import asyncio
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from outlast.core.ids import Ids
from outlast.core.run import LeaseHolder
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.race_runner import race
from outlast.worker.maintenance.history_inspector import HistoryInspector, HistoryRepairs
from outlast.worker.maintenance.recovery import Recovery, RecoveryResult
from support.crash import sqlite_recovery
from support.crash.runner import Crasher, clocked
from support.crash.sqlite_recovery import (
    BENCH,
    EXPECTED,
    NEXT_BOOT,
    Repaired,
    Reported,
    reported,
)
from support.crash.world import World

AGAIN = 2000
"""Later recoveries number their jobs from here."""


async def broken(path: Path) -> None:
    clock, ids = clocked()
    store = BENCH.store(path, clock, ids, None)
    await store.open()
    await sqlite_recovery.break_everything(World(store, path, clock, count(1)))
    await store.close()


async def recovered(path: Path, numbers: int = AGAIN) -> tuple[Repaired, Reported]:
    """Recover what is there, a second after it was broken; what was done, and how all stands."""
    clock, ids = clocked()
    clock.advance("1s")
    store = BENCH.store(path, clock, ids, None)
    await store.open()
    done = await sqlite_recovery.recover(World(store, path, clock, count(numbers)))
    found = await reported(store)
    await store.close()
    return done, found


async def test_everything_at_once_is_repaired_and_then_nothing_is_left_to_do(tmp_path):
    await broken(tmp_path / "jobs.db")

    done, found = await recovered(tmp_path / "jobs.db")
    again, then = await recovered(tmp_path / "jobs.db", numbers=2 * AGAIN)

    assert done == EXPECTED
    assert again == (RecoveryResult(), HistoryRepairs())
    assert then == found


@pytest.mark.slow
def test_killed_around_any_of_its_commits_and_started_again_it_ends_the_same(tmp_path):
    # Killed anywhere else it is as before or after a commit: the sweep of each verb shows that.
    asyncio.run(broken(tmp_path / "whole.db"))
    _, expected = asyncio.run(recovered(tmp_path / "whole.db"))
    with Crasher("support.crash.sqlite_recovery:BENCH") as crasher:
        points = crasher.points(tmp_path / "after.db", "recover")
        assert {"apply.check_detached", "maintenance.delete_orphan", "apply.successors"} <= {
            point.name for point in points
        }
        commits = [point for point in points if point.name == "unit_of_work.commit"]
        assert len(commits) > 8
        for point in commits:
            path = tmp_path / f"{point.nth}.db"
            crasher.kill(path, "recover", point)

            _, found = asyncio.run(recovered(path))

            assert found == expected, point
            path.unlink()


async def boot(store: Store, *, holder: LeaseHolder, seed: int) -> int:
    """Recover, as a process of its own does, with ids of its own."""
    numbers = count(seed)
    ids = Ids(FakeClock().now, lambda bits: next(numbers) % 2**bits)
    repairs = await HistoryInspector(store, ids.job).inspect()
    recovery = Recovery(store, holder, scope="instance", new_id=ids.job)
    return repairs.actions + (await recovery.run_once()).actions


@pytest.mark.slow
async def test_processes_that_boot_together_repair_each_thing_once(tmp_path):
    path = tmp_path / "jobs.db"
    await broken(path)
    await broken(tmp_path / "alone.db")
    _, expected = await recovered(tmp_path / "alone.db")
    holders = [NEXT_BOOT, *(LeaseHolder(instance_id=f"w{n}", boot_id=f"b{n}") for n in (7, 8, 9))]

    answers = await race(
        f"sqlite:///{path}",
        [[partial(boot, holder=holder, seed=n << 60)] for n, holder in enumerate(holders, 1)],
    )

    _, found = await recovered(path, numbers=2 * AGAIN)
    assert sum(done for [done] in answers) == sum(each.actions for each in EXPECTED)
    assert found == expected

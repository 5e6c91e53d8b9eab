"""Log files of commands go with their jobs, and when they are older than the retention."""

import os
from datetime import timedelta

import pytest

from outlast.core.ids import Ids
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import SUCCEEDED, new_id, put, settle, started, take
from outlast.testing.model.store import ModelStore
from outlast.worker.command_logs import (
    log_path,
    logs_of_stored_jobs,
    remove_logs_of_pruned_jobs,
)
from outlast.worker.maintenance.loop import Maintenance

DAY = timedelta(days=1)
LONG_AGO = 86_400.0
"""A moment of the file system's clock, in 1970."""


@pytest.fixture
async def store():
    clock = FakeClock()
    numbers = iter(range(1_000_000))
    store = ModelStore(clock, Ids(clock.now, lambda bits: next(numbers)))
    await store.open()
    return store


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "logs"


def log_of(folder, claim, *, is_old=True):
    path = log_path(folder, claim)
    path.write_text("output")
    if is_old:
        os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


async def test_old_log_of_an_ended_command_is_deleted_and_a_young_one_is_kept(store, folder):
    ended, young = await started(store), await started(store)
    log_of(folder, ended)
    kept = log_of(folder, young, is_old=False)
    for claim in (ended, young):
        await settle(store, claim, SUCCEEDED)

    removed = await Maintenance(store, new_id).prune_logs_once(folder, DAY)

    assert (removed, names(folder)) == (1, [kept.name])


async def test_log_of_a_running_command_is_kept_however_old_it_is(store, folder):
    kept = log_of(folder, await started(store))

    assert await Maintenance(store, new_id).prune_logs_once(folder, DAY) == 0
    assert names(folder) == [kept.name]


async def test_other_files_of_the_folder_are_left_alone(store, folder):
    folder.mkdir()
    for name in ("syslog.log", "01a1ed5a.log", "notes.txt"):
        (folder / name).write_text("mine")
        os.utime(folder / name, (LONG_AGO, LONG_AGO))

    await Maintenance(store, new_id).prune_logs_once(folder, DAY)

    assert len(names(folder)) == 3


async def test_folder_that_does_not_exist_holds_no_logs(store, folder):
    assert await Maintenance(store, new_id).prune_logs_once(folder, DAY) == 0


async def test_logs_go_with_pruned_jobs_and_those_of_others_stay(store, folder):
    await put(store, max_attempts=1)
    waiting, pruned = await take(store), await started(store)
    log_of(folder, pruned, is_old=False)
    kept = [log_of(folder, waiting, is_old=False).name]
    other = folder / f"{new_id()}.{new_id()}.log"  # of a job in another store
    other.write_text("output")
    await settle(store, pruned, SUCCEEDED)
    store._clock.advance(DAY)

    logs = await logs_of_stored_jobs(store, folder)
    await store.prune(older_than=timedelta(0), limit=10)
    removed = await remove_logs_of_pruned_jobs(store, logs)

    assert removed == 1
    assert names(folder) == sorted([*kept, other.name])

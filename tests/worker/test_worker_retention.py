"""Retention per type: each type's jobs go after its own time, and those kept cost no reads."""

import os
from datetime import timedelta

import pytest

from outlast import InvalidType, Outlast
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    SUCCEEDED,
    TYPE,
    ended,
    new_id,
    put_group,
    settle,
    take,
)
from outlast.worker.command_logs import log_path
from outlast.worker.maintenance.loop import Maintenance
from outlast.worker.maintenance.pruner import (
    LOOK_AGAIN,
    Pruner,
    dump_retentions,
    load_retentions,
    prune_all,
)

HOUR, DAY, MONTH = timedelta(hours=1), timedelta(days=1), timedelta(days=30)
OWN = {"noise": HOUR, "audit": None, "report": 2 * MONTH}
TYPES = ("send", *OWN)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def store(tmp_path, clock):
    store = SqliteStore(tmp_path / "jobs.db", clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def jobs(store):
    """An ended job of each type."""
    return {each: await ended(store, type=each) for each in TYPES}


async def left(store, jobs):
    found = await store.get(list(jobs.values()))
    return [name for name, job in zip(jobs, found, strict=True) if job is not None]


async def prune(pruner, retention=MONTH, own=OWN):
    while await pruner.step(retention, own) is not None:
        pass


async def test_each_type_is_kept_for_its_own_time_and_the_others_for_the_apps(store, clock, jobs):
    pruner = Pruner(store, clock)
    kept = []
    for span in (HOUR, MONTH - HOUR, MONTH, 100 * MONTH):
        await prune(pruner)
        kept.append(await left(store, jobs))
        clock.advance(span + timedelta(seconds=1))
    await prune(pruner)

    assert kept == [
        [*TYPES],
        ["send", "audit", "report"],
        ["audit", "report"],
        ["audit"],
    ]
    assert await left(store, jobs) == ["audit"], "for ever"


async def test_a_type_is_pruned_where_the_app_keeps_all_others_for_ever(store, clock, jobs):
    clock.advance(10 * MONTH)

    await prune(Pruner(store, clock), retention=None)

    assert await left(store, jobs) == ["send", "audit"]


async def test_without_retentions_of_types_the_store_chooses_and_nothing_is_listed(
    store, clock, jobs, monkeypatch
):
    monkeypatch.setattr(store, "ended_jobs", None)  # would raise
    clock.advance(MONTH + HOUR)

    await prune(Pruner(store, clock), own={})
    await prune(Pruner(store, clock), retention=None, own={})

    assert await left(store, jobs) == []


async def test_jobs_that_are_kept_are_read_once_and_not_at_every_step(store, clock, monkeypatch):
    for _ in range(5):
        await ended(store, type="audit")
    clock.advance(MONTH + HOUR)
    pruner, read, list_ended = Pruner(store, clock), [], store.ended_jobs

    async def counted(**options):
        found = await list_ended(**options)
        read.extend(found)
        return found

    monkeypatch.setattr(store, "ended_jobs", counted)
    for _ in range(6):
        await pruner.step(MONTH, {"audit": None}, 2)

    assert len(read) == len({job.id for job in read}) == 5


async def test_what_could_not_be_deleted_is_looked_at_again_after_a_day(store, clock):
    _, members = await put_group(store)
    for _ in members[1:]:
        await settle(store, await take(store), SUCCEEDED)
    clock.advance(HOUR * 2)
    pruner, own = Pruner(store, clock), {TYPE: HOUR}
    await prune(pruner, own=own)
    assert None not in await store.get(members)
    await settle(store, await take(store), SUCCEEDED)  # the group is over

    clock.advance(LOOK_AGAIN)
    await prune(pruner, own=own)

    assert await store.get(members) == [None] * len(members)


async def test_events_of_no_job_go_after_the_apps_time(store, clock, monkeypatch):
    asked, delete = [], store.prune

    async def counted(**options):
        asked.append(options)
        return await delete(**options)

    monkeypatch.setattr(store, "prune", counted)
    await prune(Pruner(store, clock))

    assert asked == [{"older_than": MONTH, "limit": 500, "chains": False}]


async def test_a_worker_prunes_by_the_retentions_of_its_types(store, clock, jobs):
    maintenance = Maintenance(store, new_id, clock=clock, retentions=lambda: OWN)
    clock.advance(HOUR * 2)

    deleted = await maintenance.prune_once(MONTH, 100)

    assert deleted == 1
    assert await left(store, jobs) == ["send", "audit", "report"]


async def test_log_files_of_a_type_stay_as_long_as_its_jobs(store, clock, tmp_path):
    folder, paths = tmp_path / "logs", {}
    claims = {}
    for name in ("send", "audit"):
        job_id = await ended(store, type=name)
        [run] = await store.runs(job_id)
        claims[name] = run
        paths[name] = log_path(folder, run)
        paths[name].write_text("output")
        os.utime(paths[name], (86_400.0, 86_400.0))

    await Maintenance(store, new_id, retentions=lambda: OWN).prune_logs_once(folder, DAY)

    assert {name for name, path in paths.items() if path.exists()} == {"audit"}


async def test_a_command_keeps_types_whose_retention_is_longer(store, jobs, clock, monkeypatch):
    monkeypatch.setattr("outlast.worker.maintenance.pruner.SystemClock", lambda: clock)
    clock.advance(DAY)

    deleted = [each async for each in prune_all(store, HOUR, {"audit": None, "report": MONTH}, 10)]

    assert sum(deleted) == 2
    assert await left(store, jobs) == ["audit", "report"]


def test_retentions_survive_the_way_to_the_supervisor():
    assert load_retentions(dump_retentions(OWN)) == OWN


def test_types_say_how_long_their_jobs_are_kept(store):
    app = Outlast(store, name="shop")
    app.job(name="plain")(lambda: None)
    app.job(name="noise", retention="1h")(lambda: None)
    app.job(name="audit", retention="forever")(lambda: None)

    assert app.registry.retentions() == {"noise": HOUR, "audit": None}
    for wrong in ("soon", -1, "for ever"):
        with pytest.raises(InvalidType, match=r'job type "bad": retention .*or "forever"'):
            app.job(name="bad", retention=wrong)(lambda: None)

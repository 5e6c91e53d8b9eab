"""S2: leases: who holds a job, for how long, and who gets it next."""

import asyncio
from pathlib import Path
from threading import Event

import pytest

from outlast import Outlast
from outlast.core.event import Lost
from outlast.core.state import Loss, State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    LEASE,
    SUCCEEDED,
    TICK,
    job_of,
    new_id,
    settle,
    started,
    take,
    take_many,
)
from outlast.worker.maintenance.loop import Maintenance, MaintenanceResult

from .app_helpers import live
from .app_programs import hold_a_story
from .child_process import Child, ask
from .database_file import Sql, opened
from .random_operations import tell_moments
from .timeouts import LONG, PATIENCE, QUICK, SOON


@pytest.mark.req("S2-3.b")
async def test_what_is_locked_cannot_be_claimed(store: SqliteStore, clock: FakeClock) -> None:
    claim = await started(store)
    clock.advance(LEASE - TICK)

    tried = await take_many(store, holder="worker-2")
    tidied = await Maintenance(store, new_id).run_once()
    forced = await settle(store, await job_of(store, claim.id), Lost(Loss.LEASE_EXPIRED))

    assert (tried, tidied, forced) == ([], MaintenanceResult(), False)
    job = await job_of(store, claim.id)
    assert (job.state, job.holder, job.token) == (State.RUNNING, "worker-1", 1)


@pytest.mark.req("S2-3.c")
async def test_what_has_an_expired_lock_can_be_claimed_by_another(
    store: SqliteStore, clock: FakeClock
) -> None:
    first = await started(store)
    clock.advance(LEASE)

    await Maintenance(store, new_id).run_once()
    second = await take(store, holder="worker-2")

    assert (second.id, second.token) == (first.id, 2)
    assert (await job_of(store, first.id)).holder == "worker-2"


@pytest.mark.req("S2-3.d")
async def test_a_job_of_three_leases_that_extends_its_lock_is_not_reclaimed(
    store: SqliteStore, clock: FakeClock
) -> None:
    claim = await started(store)
    tidy = Maintenance(store, new_id)

    for _ in range(6):
        clock.advance(LEASE / 2)
        [renewed] = await store.renew([claim.lease], span=LEASE)
        assert renewed.held
        assert await tidy.run_once() == MaintenanceResult()
        assert await take_many(store, holder="worker-2") == []

    assert await settle(store, claim, SUCCEEDED)
    assert [run.status for run in await store.runs(claim.id)] == ["succeeded"]


@pytest.mark.req("S2-6.j")
async def test_a_worker_extends_the_lock_of_a_long_job_by_itself(path: Path) -> None:
    clock, renewed, ran = FakeClock(), Event(), []

    def probe(name: str, after: bool) -> None:
        if name == "runs.renewed" and after:
            renewed.set()

    def a_full_renewal() -> None:
        for _ in range(2):  # the first may have begun before the clock moved
            renewed.clear()
            assert renewed.wait(PATIENCE)

    other = await opened(path, clock=clock)
    tidy = Maintenance(other, new_id)
    store = SqliteStore(path, clock=clock, probe=probe)
    async with Outlast(store, poll="5ms", renew="5ms", tick="5ms") as app:

        @app.job
        async def user_sync() -> str:
            ran.append(1)
            for _ in range(6):
                clock.advance(LEASE / 2)
                await asyncio.to_thread(a_full_renewal)
                assert await tidy.run_once() == MaintenanceResult()
            return "done"

        handle = await user_sync.enqueue()
        async with app.worker():
            assert await handle.result(timeout=SOON) == "done"
        runs = await app.runs(handle.id)
    await other.close()

    assert ran == [1]
    assert [run.status for run in runs] == ["succeeded"]


@pytest.mark.req("S2-3.e")
async def test_the_job_of_a_killed_worker_is_executed_by_another(path: Path) -> None:
    with Child(hold_a_story, path, "lease", LONG) as first:
        job_id = first.hear()
        first.kill()
    Sql(path).expire_leases()
    app = live(path, **QUICK)

    @app.job
    def story(title: str) -> str:
        return title.upper()

    async with app, app.worker(instance_id="second"):
        result = await app.handle(job_id).result(timeout=SOON)
        runs = await app.runs(job_id)

    assert result == "THE KRAKEN"
    assert [(run.status, run.holder) for run in runs] == [
        ("lost", "first"),
        ("succeeded", "second"),
    ]


@pytest.mark.req("S2-3.f")
def test_in_any_time_zone_every_moment_is_the_same(tmp_path: Path) -> None:
    zones = {"UTC": "UTC0", "PST": "PST8PDT,M3.2.0,M11.1.0", "NPT": "NPT-5:45"}

    reported = [ask(tell_moments, tmp_path / f"{name}.db", zone) for name, zone in zones.items()]

    assert [name for name, _ in reported] == list(zones)
    assert reported[0][1] == reported[1][1] == reported[2][1]
    assert reported[0][1]["outlast_open_runs"]

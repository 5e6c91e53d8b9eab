"""S2: effects happen once, and a key leads to one job, whoever asks and whatever dies."""

import asyncio
from pathlib import Path

import pytest

from outlast import Outlast
from outlast.core.decide import succeed
from outlast.core.state import State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import LAPSED, LEASE, settle, started, take_many
from support.crash.world import HOLDER, TYPES

from .app_helpers import drain, jobs_of
from .app_programs import schedule_summary
from .child_process import race
from .crashing import effect, wrecks
from .database_file import Sql, opened


@pytest.mark.slow
@pytest.mark.req("S2-0.b")
async def test_killed_at_every_point_an_idempotent_effect_is_seen_once(
    quick_folder: Path,
) -> None:
    repeated = 0
    for wreck in await asyncio.to_thread(wrecks, "run_whole", quick_folder):
        clock = FakeClock()
        store = await opened(wreck.path, clock=clock)
        clock.advance(2 * LEASE)  # whatever was held has expired
        for job in await store.expired_leases(limit=10):
            assert await settle(store, job, LAPSED)
        for claim in await store.claim(HOLDER, queue="default", types=TYPES, limit=9, lease=LEASE):
            repeated += len(list(wreck.path.parent.glob(f"{wreck.path.stem}.*.effect")))
            effect(wreck.path, claim)
            assert await store.apply([succeed(claim.job_id, claim.token, None)]) == [True]
        jobs = await jobs_of(store)
        runs = await store.runs(jobs[0].id)
        await store.close()

        effects = list(wreck.path.parent.glob(f"{wreck.path.stem}.*.effect"))
        assert [job.state for job in jobs] == [State.SUCCEEDED], wreck.statement
        assert [run.status for run in runs].count("succeeded") == 1, wreck.statement
        assert len(effects) == 1, wreck.statement
    assert repeated, "no kill ever fell between the effect and the finish"


@pytest.mark.req("S2-0.b")
async def test_expired_while_it_works_a_slow_worker_spoils_nothing(
    store: SqliteStore, clock: FakeClock
) -> None:
    sent = set()
    slow = await started(store)
    sent.add(slow.id)
    clock.advance(LEASE)
    [lapsed] = await store.expired_leases(limit=10)
    await settle(store, lapsed, LAPSED)
    [quick] = await take_many(store, holder="worker-2")
    sent.add(quick.id)

    late = await store.apply([succeed(slow.job_id, slow.token, '"slow"')])
    done = await store.apply([succeed(quick.job_id, quick.token, '"quick"')])
    later = await store.apply([succeed(slow.job_id, slow.token, '"slow"')])

    assert (late, done, later, len(sent)) == ([False], [True], [False], 1)
    assert [run.result for run in await store.runs(slow.id)] == [None, '"quick"']


@pytest.mark.slow
@pytest.mark.req("S2-1.u")
async def test_of_twenty_schedulers_one_writes_the_key_and_the_job(path: Path, sql: Sql) -> None:
    await (await opened(path)).close()

    reported = race(schedule_summary, 20, path)

    [winner] = [job_id for job_id, created in reported if created]
    assert [job_id for job_id, _ in reported] == [winner] * 20
    assert sql.rows("SELECT key, bucket, job_id FROM outlast_keys") == [
        ("summary#u1", "2026-01-05", winner)
    ]
    assert sql.rows("SELECT id FROM outlast_jobs") == [(winner,)]


@pytest.mark.req("S2-1.v")
async def test_a_key_that_is_there_gives_back_its_job(
    app: Outlast, store: SqliteStore, clock: FakeClock
) -> None:
    @app.job
    def daily_summary(user: str) -> None: ...

    today = daily_summary.options(key="summary#u1", bucket="2026-01-05")
    first, second = await today.enqueue("u1"), await today.enqueue("u1")
    await drain(app)
    clock.advance("1d")
    when_done = await today.enqueue("u1")
    tomorrow = await daily_summary.options(key="summary#u1", bucket="2026-01-06").enqueue("u1")

    assert [each.created for each in (first, second, when_done, tomorrow)] == [
        True,
        False,
        False,
        True,
    ]
    assert first.id == second.id == when_done.id != tomorrow.id
    assert len(await jobs_of(store)) == 2


@pytest.mark.req("S2-1.w")
def test_the_key_and_its_job_are_one_transaction(tmp_path: Path) -> None:
    counts = [
        (len(wreck.found["outlast_keys"]), len(wreck.found["outlast_jobs"]))
        for wreck in wrecks("add_keyed", tmp_path)
    ]

    assert set(counts) == {(0, 0), (1, 1)}
    assert (counts[0], counts[-1]) == ((0, 0), (1, 1))


@pytest.mark.req("S2-1.y")
async def test_without_a_key_two_calls_are_two_jobs(app: Outlast, store: SqliteStore) -> None:
    ran = []

    @app.job
    def daily_summary(user: str) -> None:
        ran.append(user)

    first, second = await daily_summary.enqueue("u1"), await daily_summary.enqueue("u1")
    await drain(app)

    assert (first.created, second.created, first.id != second.id) == (True, True, True)
    assert ran == ["u1", "u1"]

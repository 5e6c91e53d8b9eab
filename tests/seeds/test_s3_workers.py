"""S3: several workers on one file: one claim per job, all at once, never twice."""

from datetime import timedelta
from pathlib import Path

import pytest

from outlast import Outlast, Run
from outlast.clock import to_micros
from outlast.core.run import Claim
from outlast.core.state import State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import SUCCEEDED, new_id, put, settle, started, take
from outlast.worker.maintenance.loop import Maintenance

from .app_helpers import drain, ids_of, jobs_of
from .app_programs import work_and_note
from .child_process import race
from .crashing import wrecks
from .database_file import Sql, opened
from .store_programs import TYPE, claim_everything


async def test_two_processes_claim_twenty_jobs_and_each_is_returned_once(path: Path) -> None:
    store = await opened(path)
    jobs = [await put(store, type=TYPE) for _ in range(20)]

    reported = race(claim_everything, 2, path, "worker")
    await store.close()

    taken = [job_id for ids, _ in reported for job_id in ids]
    assert sorted(taken) == sorted(jobs)
    assert [then for _, then in reported] == [[], []]


def test_one_claim_sets_state_holder_start_and_heartbeat_together(tmp_path: Path) -> None:
    four = (
        "SELECT state = 'running', holder, started_at, lease_until FROM outlast_job_state AS s"
        " WHERE NOT EXISTS (SELECT 1 FROM outlast_runs WHERE job = s.seq)"
    )

    seen = [row for wreck in wrecks("claim_some", tmp_path) for row in Sql(wreck.path).rows(four)]

    now = to_micros(START + timedelta(seconds=1))
    assert {row for row in seen if not row[0]} == {(0, None, None, None)}
    assert {row[:3] for row in seen if row[0]} == {(1, "worker-1", now)}
    assert all(row[3] for row in seen if row[0])


@pytest.mark.req("S3-2.m")
async def test_claiming_and_handing_back_the_job_are_one_transaction(path: Path) -> None:
    ran: list[str] = []
    store = await opened(
        path, clock=FakeClock(), probe=lambda name, after: None if after else ran.append(name)
    )
    await put(store)
    ran.clear()

    claim = await take(store)
    await store.close()

    assert [ran[0], ran[-1]] == ["unit_of_work.begin", "unit_of_work.commit"]
    assert [name for name in ran[1:-1] if name.startswith("unit_of_work.")] == []
    assert {"claim.open", "claim.leave_waiting", "claim.claimed"} <= set(ran)
    assert claim.token == 1


@pytest.mark.req("S3-2.o")
async def test_two_workers_process_twenty_jobs_twenty_times(path: Path, clock: FakeClock) -> None:
    ran: list[str] = []
    apps = [Outlast(SqliteStore(path, clock=clock), poll="5ms") for _ in range(2)]

    for app in apps:

        @app.job
        async def scrape(run: Run) -> None:
            ran.append(run.job_id)

    async with apps[0], apps[1]:
        scrape = apps[0].registry.get("scrape")
        handles = await apps[0].enqueue_many([scrape.bind() for _ in range(20)])
        async with apps[0].worker(concurrency=2) as one, apps[1].worker(concurrency=2) as two:
            await one.drained()
            await two.drained()
        states = [(await handle.read()).state for handle in handles]

    assert sorted(ran) == sorted(ids_of(handles))
    assert states == [State.SUCCEEDED] * 20
    assert (one.refused, two.refused) == (0, 0)


@pytest.mark.req("S3-2.o")
async def test_the_late_result_of_a_zombie_is_refused(
    app: Outlast, store: SqliteStore, clock: FakeClock
) -> None:
    @app.job
    async def scrape(run: Run) -> str:
        clock.advance("1h")  # asleep for longer than its lease
        await Maintenance(store, new_id).run_once()
        taken.append(await take(store, types=["scrape"], holder="worker-2"))
        return "too late"

    taken: list[Claim] = []
    handle = await scrape.enqueue()
    zombie = await drain(app, concurrency=1)  # no room for the one it lost
    meanwhile = await app.get(handle.id)
    ended = await settle(store, taken[0], SUCCEEDED)

    assert zombie.refused == 1
    assert (meanwhile.state, meanwhile.holder) == (State.RUNNING, "worker-2")
    assert ended, "the run of the other worker was not ended by the zombie"
    assert [(run.status, run.holder) for run in await app.runs(handle.id)][1:] == [
        ("succeeded", "worker-2")
    ]
    assert (await app.runs(handle.id))[-1].result == '"done"'


@pytest.mark.slow
@pytest.mark.req("S3-4.a")
async def test_two_worker_processes_take_no_job_twice(path: Path, tmp_path: Path, sql: Sql) -> None:
    ledger = tmp_path / "ledger"
    store = await opened(path)
    jobs = [await put(store, type=TYPE) for _ in range(20)]

    refused = race(work_and_note, 2, path, ledger)
    states = [job.state for job in await jobs_of(store)]
    await store.close()

    executed = [line.split()[0] for line in ledger.read_text(encoding="ascii").splitlines()]
    assert sorted(executed) == sorted(jobs)
    assert states == [State.SUCCEEDED] * 20
    # What would have waited there for too long was released, and is none.
    assert sql.value("SELECT count(*) FROM outlast_runs WHERE status <> 'released'") == 20
    assert refused == [0, 0]


async def test_migrating_makes_the_schema_and_migrating_again_does_nothing(
    path: Path, sql: Sql
) -> None:
    schema = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"

    await (await opened(path, clock=FakeClock())).close()
    first, version = sql.rows(schema), sql.value("SELECT version FROM outlast_meta")
    store = await opened(path, clock=FakeClock())
    claim = await started(store)
    await store.close()
    await (await opened(path, clock=FakeClock())).close()

    columns = {row[1] for row in sql.rows("PRAGMA table_info(outlast_open_runs)")}
    assert {"token", "worker", "started_at", "lease_until"} <= columns
    assert version >= 1
    assert sql.rows(schema) == first
    assert sql.value("SELECT version FROM outlast_meta") == version
    assert sql.rows("SELECT id, state FROM outlast_job_state") == [(claim.id, "running")]

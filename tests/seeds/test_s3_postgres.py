"""S3 on every store: many workers, one claim per job, and what the dead leave is taken up again."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from outlast import Outlast, Settings
from outlast.core.run import Claim
from outlast.core.state import RunStatus, State
from outlast.store.contract import Store
from outlast.store.open import open_store
from outlast.store.postgres.placeholders import statements
from outlast.store.postgres.store import PostgresStore
from outlast.store.postgres.url import parse_url
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import job_of, new_id, put, take, take_many
from outlast.worker.maintenance.loop import Maintenance, MaintenanceResult
from support.postgres.clock import DatabaseClock

from .app_helpers import jobs_of
from .child_process import Child, race
from .coins import TYPE, claim_all, claim_none, collect, hold
from .store_urls import SQL, keyvalue
from .store_urls import store_url as make_url
from .timeouts import PATIENCE, QUICK, SHORT

JOBS = 20
PROFILE = {"lease": "300s", "renew": "20s", "tick": "60s"}
"""S3's own: heartbeat every 20 s, stuck after 300 s, looked for every 60 s."""

TIMEOUT = timedelta(seconds=300)
BEAT = timedelta(seconds=20)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "url" in metafunc.fixturenames:
        metafunc.parametrize("url", (*SQL, *keyvalue()), indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return make_url(request, tmp_path)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """By the clock of the machine, or of the database."""
    opened = open_store(url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def timed(url: str, clock: FakeClock) -> AsyncIterator[Store]:
    """By a clock that moves only when told."""
    opened = open_store(url, clock=DatabaseClock(clock) if "postgresql" in url else clock)
    await opened.open()
    yield opened
    await opened.close()


async def pending(store: Store, number: int = JOBS) -> list[str]:
    return [await put(store, type=TYPE, name=TYPE) for _ in range(number)]


@pytest.mark.req("S3-2.k")
async def test_a_claim_skips_what_somebody_else_has_locked(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    await store.open()
    first, second, third = await pending(store, 3)
    other = await asyncpg.connect(parse_url(postgres_url).dsn)
    locking = other.transaction()
    await locking.start()
    schema = parse_url(postgres_url).schema
    await other.execute(f'SELECT 1 FROM "{schema}".waiting WHERE job = $1 FOR UPDATE', first)  # noqa: S608 - ours

    async with asyncio.timeout(PATIENCE):  # whoever waited for the lock would wait for ever
        taken = await take_many(store, types=[TYPE], limit=JOBS)
    await locking.rollback()
    later = await take_many(store, types=[TYPE], limit=JOBS)
    await other.close()
    await store.close()

    assert [claim.id for claim in taken] == [second, third]
    assert [claim.id for claim in later] == [first]
    assert "FOR UPDATE SKIP LOCKED" in statements()["claim.backlog"].text


@pytest.mark.req("S3-2.k")
async def test_as_many_workers_as_jobs_get_one_each_and_nobody_errs(url: str, store: Store) -> None:
    jobs = await pending(store, 8)
    workers = [open_store(url) for _ in jobs]
    for worker in workers:
        await worker.open()
        await claim_none(worker)

    claims = await asyncio.gather(
        *(take(worker, types=[TYPE], holder=f"worker-{n}") for n, worker in enumerate(workers))
    )
    for worker in workers:
        await worker.close()

    assert sorted(claim.id for claim in claims) == sorted(jobs)


@pytest.mark.req("S3-2.m")
async def test_two_processes_claim_twenty_jobs_and_each_is_returned_once(
    url: str, store: Store
) -> None:
    jobs = await pending(store)

    reported = await asyncio.to_thread(race, claim_all, 2, url)

    taken = [job_id for ids, _ in reported for job_id in ids]
    assert sorted(taken) == sorted(jobs)
    assert [then for _, then in reported] == [[], []]


@pytest.mark.slow
@pytest.mark.req("S3-2.o", "S3-4.a")
async def test_two_worker_processes_execute_twenty_jobs_twenty_times(
    url: str, store: Store, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    jobs = await pending(store)

    refused = await asyncio.to_thread(race, collect, 2, url, ledger)

    executed = [line.split()[0] for line in ledger.read_text(encoding="ascii").splitlines()]
    assert sorted(executed) == sorted(jobs)
    assert [job.state for job in await jobs_of(store)] == [State.SUCCEEDED] * JOBS
    runs = [run for job in await jobs_of(store) for run in await store.runs(job.id)]
    # What would have waited there for too long was released, and is none.
    assert sorted(run.job_id for run in runs if run.status != "released") == sorted(jobs)
    assert refused == [0, 0]


async def test_one_claim_sets_state_holder_start_and_heartbeat_together(postgres_url: str) -> None:
    seen = []
    look = await asyncpg.connect(parse_url(postgres_url).dsn)
    schema = parse_url(postgres_url).schema
    four = f'SELECT state, holder, started_at, lease_until FROM "{schema}".job_state'  # noqa: S608 - ours
    store = PostgresStore(postgres_url)
    await store.open()
    await pending(store, 1)

    async def watch() -> None:
        while not seen or seen[-1][0] == "queued":
            seen.append(tuple((await look.fetch(four))[0]))

    watching = asyncio.create_task(watch())
    await take(store, types=[TYPE], holder="worker-1")
    await asyncio.wait_for(watching, PATIENCE)
    await look.close()
    await store.close()

    *before, after = seen
    assert set(before) <= {("queued", None, None, None)}
    assert after[:2] == ("running", "worker-1")
    assert None not in after


async def stuck(store: Store, clock: FakeClock) -> Claim:
    """A job whose worker sent two heartbeats and then fell silent, longer ago than the timeout."""
    await pending(store, 1)
    claim = await take(store, types=[TYPE], holder="worker-1", lease=TIMEOUT)
    for _ in range(2):
        clock.advance(BEAT)
        [renewal] = await store.renew([claim.lease], span=TIMEOUT)
        assert renewal.held
    clock.advance(TIMEOUT - timedelta(seconds=1))
    assert await Maintenance(store, new_id).run_once() == MaintenanceResult(), "a second too early"
    clock.advance("2s")
    return claim


@pytest.mark.req("S3-2.e", "S3-2.g", "S3-2.h", "S3-2.i")
async def test_a_silent_worker_s_job_is_pending_again_counted_and_its_holder_logged(
    timed: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    claim = await stuck(timed, clock)

    tidied = await Maintenance(timed, new_id).run_once()

    job = await job_of(timed, claim.id)
    [run] = await timed.runs(claim.id)
    [line] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert tidied == MaintenanceResult(reclaimed=1)
    assert (job.state, job.failures, job.losses) == (State.QUEUED, 1, 1)
    assert (run.status, run.reason, run.holder) == (RunStatus.LOST, "lease_expired", "worker-1")
    assert claim.id in line.getMessage()
    assert "worker-1" in line.getMessage()
    assert (await take(timed, types=[TYPE], holder="worker-2")).token == claim.token + 1


def test_the_heartbeat_the_timeout_and_the_check_are_settings() -> None:
    settings = Settings(**PROFILE)

    assert (settings.renew, settings.lease) == (BEAT, TIMEOUT)
    assert settings.tick == timedelta(seconds=60)


@pytest.mark.slow
@pytest.mark.req("S3-4.i")
async def test_the_job_of_a_killed_worker_is_processed_by_another(url: str, store: Store) -> None:
    [job] = await pending(store, 1)
    with Child(hold, url, SHORT) as child:
        assert await asyncio.to_thread(child.hear) == job
        await asyncio.to_thread(child.kill)

    app = Outlast(url, **QUICK)

    @app.job(name=TYPE)
    async def scrape() -> str:
        return "collected"

    async with app, app.worker(instance_id="worker-2"):
        result = await asyncio.wait_for(app.handle(job).result(), PATIENCE)

    assert result == "collected"
    *lost, last = [(run.status, run.holder) for run in await store.runs(job)]
    assert set(lost) == {("lost", "worker-1")}, "more than once where it was slow to renew"
    assert last == ("succeeded", "worker-2")

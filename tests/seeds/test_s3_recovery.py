"""S3: heartbeats, reclaim and backoff among several workers."""

import logging
from datetime import timedelta

import pytest

from outlast import Backoff, Outlast
from outlast.core.state import RunStatus, State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import job_of, new_id, put, take
from outlast.worker.maintenance.loop import Maintenance, MaintenanceResult

from .app_helpers import drain

TIMEOUT = timedelta(seconds=300)
MINUTE = timedelta(minutes=1)


async def stuck(store: SqliteStore, clock: FakeClock):
    """A job whose worker fell silent longer than the timeout ago."""
    await put(store)
    claim = await take(store, holder="worker-1", lease=TIMEOUT)
    clock.advance("301s")
    return claim


@pytest.mark.req("S3-2.e")
async def test_a_job_is_stuck_when_its_last_heartbeat_is_older_than_the_timeout(
    store: SqliteStore, clock: FakeClock
) -> None:
    await put(store)
    claim = await take(store, lease=TIMEOUT)
    clock.advance("100s")
    await store.renew([claim.lease], span=TIMEOUT)  # the heartbeat
    tidy = Maintenance(store, new_id)

    clock.advance("299s")
    early = (await tidy.run_once(), (await job_of(store, claim.id)).state)
    clock.advance("2s")
    late = (await tidy.run_once(), (await job_of(store, claim.id)).state)

    assert early == (MaintenanceResult(), State.RUNNING)
    assert late == (MaintenanceResult(reclaimed=1), State.QUEUED)


@pytest.mark.req("S3-2.g")
async def test_a_stuck_job_goes_back_to_pending_and_is_claimable_at_once(
    store: SqliteStore, clock: FakeClock
) -> None:
    claim = await stuck(store, clock)

    await Maintenance(store, new_id).run_once()
    job = await job_of(store, claim.id)
    again = await take(store, holder="worker-2")

    assert (job.state, job.available_at) == (State.QUEUED, START)
    assert (again.id, again.token) == (claim.id, 2)


@pytest.mark.req("S3-2.h")
async def test_a_reclaim_counts_an_attempt_and_closes_the_run_as_lost(
    store: SqliteStore, clock: FakeClock
) -> None:
    claim = await stuck(store, clock)
    before = (await job_of(store, claim.id)).failures

    await Maintenance(store, new_id).run_once()

    [run] = await store.runs(claim.id)
    job = await job_of(store, claim.id)
    assert (before, job.failures, job.losses) == (0, 1, 1)
    assert (run.status, run.reason, run.holder) == (RunStatus.LOST, "lease_expired", "worker-1")
    assert run.finished_at == clock.now()


@pytest.mark.req("S3-2.i")
async def test_the_log_of_a_reclaim_names_the_job_and_its_former_holder(
    store: SqliteStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    claim = await stuck(store, clock)

    await Maintenance(store, new_id).run_once()

    [line] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert claim.id in line.getMessage()
    assert "worker-1" in line.getMessage()


@pytest.mark.req("S3-2.p", "S3-2.r")
async def test_a_retry_waits_twice_as_long_each_time_and_is_stored_so(
    app: Outlast, clock: FakeClock
) -> None:
    @app.job(retry=Backoff(None, base="5m", cap="24h", jitter=False))
    def scrape() -> None:
        clock.advance("3s")
        raise TimeoutError("the shop is slow")

    handle = await scrape.enqueue()
    waits = []
    for _ in range(3):
        await drain(app)
        next_retry_at = (await handle.read()).available_at
        waits.append(next_retry_at - clock.now())
        clock.advance(waits[-1])

    assert waits == [5 * MINUTE, 10 * MINUTE, 20 * MINUTE]


@pytest.mark.req("S3-2.q")
async def test_the_wait_is_capped_at_a_day(app: Outlast, clock: FakeClock) -> None:
    @app.job(retry=Backoff(None, base="1m", cap="24h", jitter=False))
    def scrape() -> None:
        raise TimeoutError("the shop is slow")

    handle = await scrape.enqueue()
    waits = []
    for _ in range(14):
        await drain(app)
        waits.append((await handle.read()).available_at - clock.now())
        clock.advance(waits[-1])

    assert waits[10] == 1024 * MINUTE
    assert waits[11:] == [1440 * MINUTE] * 3

"""A network that falls silent costs no lease while new connections work."""

import asyncio
from dataclasses import dataclass

import asyncpg
import pytest
from worker_helpers import PATIENCE, QUICK, SOON, statuses

from outlast import Backoff, Outlast, Run, Settings, State
from outlast.store.postgres import statement_watch
from outlast.testing.conformance import sizes
from support.servers.fault_proxy import fault_proxy

JOBS = 4


@dataclass(frozen=True)
class Silence:
    settings: Settings
    check_after: float
    seconds: float


SHORT = Silence(QUICK.with_(concurrency=JOBS), 1.0, 0.5)
FULL = Silence(Settings(concurrency=JOBS), statement_watch.CHECK_AFTER_S, 40)
"""The settings that a user has without choosing any, for almost three leases."""


async def _renewed_since(outside, schema, before):
    """Wait until every open run has a later lease than then; its leases now."""
    async with asyncio.timeout(PATIENCE):
        while True:
            leases = [
                row["lease_until"] for row in await outside.fetch(f'TABLE "{schema}".open_runs')
            ]
            if len(leases) == JOBS and min(leases) > before:
                return leases
            await asyncio.sleep(0.02)


@pytest.mark.timeout(300)
async def test_leases_are_renewed_over_new_connections_when_the_open_ones_fall_silent(
    postgres, postgres_url, monkeypatch
):
    size = FULL if sizes.SIZES is sizes.TABLE["full"] else SHORT
    monkeypatch.setattr(statement_watch, "CHECK_AFTER_S", size.check_after)
    outside = await asyncpg.connect(postgres_url.partition("?")[0])
    gate, started = asyncio.Event(), []
    with fault_proxy(postgres.port) as network:
        url = postgres_url.replace(f":{postgres.port}/", f":{network.port}/")
        async with Outlast(url, settings=size.settings) as app:
            schema = app._store.address.schema

            @app.job(retry=Backoff(1))
            async def waits(run: Run) -> None:
                started.append(run.id)
                await gate.wait()

            async with app.worker() as worker:
                handles = await app.enqueue_many(waits.bind() for _ in range(JOBS))
                leases = await _renewed_since(outside, schema, 0)
                leases = await _renewed_since(outside, schema, max(leases))

                assert network.silence() >= 3
                await asyncio.sleep(size.seconds)
                await _renewed_since(outside, schema, max(leases))
                gate.set()
                ends = [await handle.wait(SOON) for handle in handles]

                assert worker.refused == 0
            assert [job.state for job in ends] == [State.SUCCEEDED] * JOBS
            assert [await statuses(app, each) for each in handles] == [[("succeeded", None)]] * JOBS
            assert len(started) == JOBS
    await outside.close()

"""Pruning on PostgreSQL: workers share it, retries are safe from it, former workers go with it."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from outlast.core.event import CancelRequested
from outlast.core.lineage import retry_copy
from outlast.core.state import State
from outlast.store.postgres.store import PostgresStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    MANY,
    SUCCEEDED,
    ended,
    job_of,
    make_job,
    make_worker,
    new_id,
    put,
    settle,
    started,
    take_many,
)

from .pg_waiting import until_somebody_waits


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(postgres_url: str, clock: FakeClock) -> AsyncIterator[PostgresStore]:
    postgres_store = PostgresStore(postgres_url, clock=clock)
    await postgres_store.open()
    yield postgres_store
    await postgres_store.close()


@pytest.fixture
async def outside(store: PostgresStore) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(store.address.dsn)
    await connection.execute(f'SET search_path = "{store.address.schema}"')
    yield connection
    await connection.close()


async def _prune(store: PostgresStore, clock: FakeClock, limit: int = MANY) -> int:
    clock.advance(2 * HOUR)
    return await store.prune(older_than=HOUR, limit=limit)


async def test_workers_that_prune_at_once_delete_different_jobs(
    store: PostgresStore, clock: FakeClock, outside: asyncpg.Connection
) -> None:
    """A worker that finds the oldest jobs locked by another one deletes the next ones."""
    await store.add([make_job() for _ in range(6)])
    for claim in await take_many(store, limit=6):
        await settle(store, claim, SUCCEEDED)
    other = outside.transaction()
    await other.start()
    oldest = "SELECT id FROM jobs WHERE id IN (SELECT job FROM ends ORDER BY at, seq LIMIT 3)"
    await outside.execute(f"{oldest} FOR UPDATE")

    pruned = await _prune(store, clock, limit=3)
    await other.rollback()

    assert pruned == 3
    assert await store.prune(older_than=HOUR, limit=3) == 3


SLOW_VIEW = """
CREATE FUNCTION wait_for_test() RETURNS boolean LANGUAGE plpgsql VOLATILE AS
$$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN true; END $$;
CREATE OR REPLACE VIEW jobs_of_live_groups AS
SELECT j.id AS job FROM jobs AS j WHERE NOT {schema}.wait_for_test()
"""
"""The prune reads this view after its snapshot was taken and before it locks a job."""


async def test_job_that_is_retried_while_it_is_pruned_stays_with_its_retry(
    store: PostgresStore, postgres_url: str, clock: FakeClock, outside: asyncpg.Connection
) -> None:
    """The retry commits after the prune has chosen the job and before the prune locks it."""
    waiting = await put(store)
    await settle(store, await job_of(store, waiting), CancelRequested())
    retry = retry_copy(await job_of(store, waiting), new_id())
    other = PostgresStore(postgres_url, clock=clock)
    await other.open()
    await outside.execute(SLOW_VIEW.format(schema=f'"{store.address.schema}"'))
    await outside.execute("SELECT pg_advisory_lock(4711)")

    pruning = asyncio.create_task(_prune(store, clock))
    await until_somebody_waits(store.address.dsn)
    [added] = await other.add([retry])
    await other.close()
    await outside.execute("SELECT pg_advisory_unlock(4711)")

    assert added.created
    assert await pruning == 0
    assert [job.state for job in await store.chain(waiting)] == [State.CANCELLED, State.QUEUED]


async def _rows(outside: asyncpg.Connection) -> list[str]:
    found = await outside.fetch("SELECT instance_id FROM workers WHERE id > 0 ORDER BY id")
    return [row[0] for row in found]


async def test_many_boots_leave_no_row_behind(
    store: PostgresStore, clock: FakeClock, outside: asyncpg.Connection
) -> None:
    for number in range(30):
        await store.register_worker(make_worker(boot_id=f"boot-{number}"))

    await _prune(store, clock)

    assert await _rows(outside) == []


async def test_row_of_an_embedded_worker_goes_with_its_last_run(
    store: PostgresStore, clock: FakeClock, outside: asyncpg.Connection
) -> None:
    await ended(store)
    before = await _rows(outside)

    await _prune(store, clock)

    assert (before, await _rows(outside)) == (["worker-1"], [])


async def test_row_stays_while_a_run_points_at_it(
    store: PostgresStore, clock: FakeClock, outside: asyncpg.Connection
) -> None:
    await ended(store, FAILED, max_attempts=1)
    await store.register_worker(make_worker("worker-2"))
    await started(store, queue="lane")

    await _prune(store, clock)

    assert await _rows(outside) == ["worker-1"]


OPEN_RUN = """
WITH claimed AS (DELETE FROM waiting WHERE job = $1 RETURNING *)
INSERT INTO open_runs (
  job, seq, run_id, token, worker, started_at, lease_until, queue, name, delivery, priority,
  position, available_at, failures, losses, active, plain
)
SELECT w.job, w.seq, gen_random_uuid(), 1, k.id, 1, 1, w.queue, w.name, w.delivery, w.priority,
  w.position, w.available_at, 0, 0, false, true
FROM claimed AS w, workers AS k
WHERE k.instance_id = 'worker-1'
"""


async def test_row_that_a_claim_in_progress_has_read_stays(
    store: PostgresStore, clock: FakeClock, outside: asyncpg.Connection
) -> None:
    """The claim commits a run of that worker after the row was found to be unused."""
    await ended(store)
    job_id = await put(store)
    claim = outside.transaction()
    await claim.start()
    await outside.execute(OPEN_RUN, job_id)

    pruning = asyncio.create_task(_prune(store, clock))
    await until_somebody_waits(store.address.dsn)
    await claim.commit()

    assert await pruning == 1
    assert await _rows(outside) == ["worker-1"]

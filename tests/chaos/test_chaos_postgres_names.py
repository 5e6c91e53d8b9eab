"""A worker on PostgreSQL whose name another worker has stops claiming and logs why."""

import asyncio

import asyncpg
import pytest

from outlast.worker.supervisor.options import WorkerExit

from .tree import until

pytestmark = pytest.mark.slow

KEY = "hashtextextended($1, 0)"
HOLDER = (
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND (classid::bigint << 32 | objid::bigint) = hashtextextended($1, 0)"
)
WAITER = HOLDER.replace("granted", "NOT granted")


async def steal(url: str, name: str, worker_ended: asyncio.Event) -> None:
    """Wait in line for the lock, break the holder's connection, and keep it."""
    dsn, schema = url.split("?schema=")
    key = f"outlast lock {schema} {name}"
    thief, operator = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    try:
        async with thief.transaction():
            waiting = asyncio.create_task(
                thief.execute(f"SELECT pg_advisory_xact_lock({KEY})", key)
            )
            pid = await operator.fetchval(HOLDER, key)
            while not await operator.fetchval(WAITER, key):  # noqa: ASYNC110 - the server's
                await asyncio.sleep(0.01)
            await operator.execute("SELECT pg_terminate_backend($1)", pid)
            await waiting
            await worker_ended.wait()
    finally:
        await thief.close()
        await operator.close()


def test_worker_whose_name_was_taken_stops(postgres_url, grow):
    tree = grow("--instance-id", "w1", env={"CHAOS_URL": postgres_url}).ready()

    async def take_its_name() -> int:
        ended = asyncio.Event()
        stealing = asyncio.create_task(steal(postgres_url, "worker.w1", ended))
        code = await asyncio.to_thread(tree.wait)
        ended.set()
        await stealing
        return code

    code = asyncio.run(take_its_name())

    assert code == WorkerExit.IDENTITY_IN_USE, tree.log
    assert tree.lines("another worker has the name w1")
    assert tree.lines("lock lost, another process acquired it")


def test_second_worker_of_a_name_is_refused_and_gets_it_once_the_first_was_killed(
    postgres_url, grow
):
    first = grow("--instance-id", "w1", env={"CHAOS_URL": postgres_url}).ready()

    second = grow("--instance-id", "w1", env={"CHAOS_URL": postgres_url})
    refused = second.wait()
    first.kill()
    third = grow("--instance-id", "w1", env={"CHAOS_URL": postgres_url}).ready()

    assert refused == WorkerExit.IDENTITY_IN_USE, second.log
    assert until(lambda: third.lines("worker started instance=w1"), what="its start")

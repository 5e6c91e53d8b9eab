"""A worker on PostgreSQL whose name another worker has stops claiming and logs why."""

import asyncio

import asyncpg
import pytest

from outlast import Outlast
from outlast.worker.supervisor.options import WorkerExit

from .ledger import bound
from .worker_app import register
from .worker_tree import LONG, WorkerTree, until

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


async def test_second_worker_of_a_name_gets_it_and_its_runs_once_the_first_was_killed(
    postgres_url, grow, notes
):
    def start() -> WorkerTree:
        return grow("--instance-id", "w1", env={"CHAOS_URL": postgres_url}, **LONG)

    async with register(Outlast(postgres_url), notes) as app:
        [job] = await app.enqueue_many(bound(app, [("waits", {"gate": "never"})], {}))
        first = start().ready()
        until(lambda: notes.of(job.id), what="its run")

        second = start()
        refused = second.wait()
        first.kill()
        start()
        until(lambda: len(notes.of(job.id)) == 2, what="its second start, before its lease expires")

        assert refused == WorkerExit.IDENTITY_IN_USE, second.log
        [run, *_] = await app.store.runs(job.id)
        assert (run.status, run.reason) == ("lost", "startup_recovery")

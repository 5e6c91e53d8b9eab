"""A transaction that the store cannot open or commit costs its job no attempt."""

import asyncio

import asyncpg
import psycopg
import pytest
from worker_helpers import QUICK, SOON, statuses

from outlast import Backoff, Outlast, Run, State
from outlast.errors import StoreUnavailable
from outlast.store.postgres import handler_connection, pool
from outlast.store.postgres.handler_transaction import PostgresTransaction

ONCE = Backoff(1)
"""No retry: a failure would be the end of the job."""

both = pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
SERVED = ("released", "store_failed"), ("succeeded", None)


def paying(app, thread, **settings):
    """A handler that writes one row in its transaction."""
    if thread:

        @app.job(name="pay", retry=ONCE, **settings)
        def pay_in_thread(run: Run):
            with run.transaction() as conn:
                conn.execute("INSERT INTO effects VALUES ('paid')")

        return pay_in_thread

    @app.job(name="pay", retry=ONCE, **settings)
    async def pay(run: Run):
        async with run.transaction() as conn:
            await conn.execute("INSERT INTO effects VALUES ('paid')")

    return pay


@pytest.fixture
async def outside(postgres_url):
    connection = await asyncpg.connect(postgres_url.partition("?")[0])
    await connection.execute("DROP TABLE IF EXISTS effects; CREATE TABLE effects (what text)")
    yield connection
    await connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("postgres_url")


def fail_once(app, monkeypatch):
    """The store cannot open the first transaction that is asked for."""
    begin, failed = app._store.begin, []

    async def begin_later(**options):
        if not failed:
            failed.append(1)
            raise StoreUnavailable("the server does not answer, says the test")
        return await begin(**options)

    monkeypatch.setattr(app._store, "begin", begin_later)


@both
async def test_a_run_whose_transaction_cannot_be_opened_is_released(url, thread, monkeypatch):
    async with Outlast(url, settings=QUICK) as app:
        fail_once(app, monkeypatch)

        if thread:

            @app.job(retry=ONCE)
            def pay(run: Run) -> int:
                with run.transaction():
                    return run.attempt

        else:

            @app.job(retry=ONCE)
            async def pay(run: Run) -> int:
                async with run.transaction():
                    return run.attempt

        async with app.worker():
            handle = await pay.enqueue()

            assert await handle.result(SOON) == 1, "no attempt was spent"
        assert tuple(await statuses(app, handle)) == SERVED


async def test_a_run_that_must_not_be_repeated_fails_instead(url, monkeypatch):
    async with Outlast(url, settings=QUICK) as app:
        fail_once(app, monkeypatch)

        @app.job(delivery="linked", retry=ONCE)
        async def pay(run: Run) -> None:
            async with run.transaction():
                pass

        async with app.worker():
            handle = await pay.enqueue()
            job = await handle.wait(SOON)

        assert job.state is State.DEAD_LETTER
        assert [status for status, _ in await statuses(app, handle)] == ["failed"]


@both
async def test_a_server_without_a_free_connection_is_waited_for(
    postgres_url, outside, thread, monkeypatch
):
    """The server refuses two of three connections of handlers; no job has a second attempt."""
    asked = []

    def refuse(error):
        asked.append(1)
        if len(asked) % 3:
            raise error

    connect, guarded = asyncpg.connect, handler_connection._guarded_psycopg_class

    async def connect_async(*args, **options):
        if options.get("connection_class") is handler_connection.GuardedAsyncpgConnection:
            refuse(asyncpg.TooManyConnectionsError("sorry, too many clients already"))
        return await connect(*args, **options)

    def connect_blocking():
        refuse(psycopg.OperationalError("sorry, too many clients already"))
        return guarded()

    monkeypatch.setattr(asyncpg, "connect", connect_async)
    monkeypatch.setattr(handler_connection, "_guarded_psycopg_class", connect_blocking)
    async with Outlast(postgres_url, settings=QUICK) as app:
        pay = paying(app, thread)
        async with app.worker(concurrency=5):
            handles = await app.enqueue_many(pay.bind() for _ in range(5))
            ends = [await handle.wait(SOON) for handle in handles]

        assert [job.state for job in ends] == [State.SUCCEEDED] * 5
    assert await outside.fetchval("SELECT count(*) FROM effects") == 5
    assert len(asked) > 5


async def test_transactions_beyond_the_most_that_are_open_wait_for_their_turn(
    postgres_url, outside, monkeypatch
):
    monkeypatch.setattr(pool, "MAX_HANDLER_CONNECTIONS", 2)
    open_now, counts = set(), []
    async with Outlast(postgres_url, settings=QUICK) as app:

        @app.job(retry=ONCE)
        async def pay(run: Run) -> None:
            async with run.transaction() as conn:
                open_now.add(run.id)
                counts.append(len(open_now))
                await conn.execute("INSERT INTO effects VALUES ('paid')")
                await asyncio.sleep(0)
            open_now.discard(run.id)

        async with app.worker(concurrency=10):
            handles = await app.enqueue_many(pay.bind() for _ in range(10))
            ends = [await handle.wait(SOON) for handle in handles]

        assert {job.state for job in ends} == {State.SUCCEEDED}
        assert max(counts) <= 2
    assert await outside.fetchval("SELECT count(*) FROM effects") == 10


class _CutAtCommit:
    """Runs statements of a handler's transaction; the connection breaks at its commit, once."""

    def __init__(self, runner, lost):
        self._runner, self._lost = runner, lost
        self.fetch = runner.fetch

    async def change(self, name, values):
        if name != "unit_of_work.commit" or not self._lost:
            return await self._runner.change(name, values)
        if self._lost.pop() == "reply":
            await self._runner.change(name, values)
        raise ConnectionResetError("cut, says the test")


@both
@pytest.mark.parametrize("place", ["reply", "request"])
async def test_a_commit_cut_off_happens_once_and_costs_no_attempt(
    postgres_url, outside, thread, place, monkeypatch
):
    """Its reply is lost: the end is found. It never arrives: the run is released and repeated."""
    lost, finish = [place], PostgresTransaction._finish

    async def finish_and_cut(self, changes):
        self._handler_connection.runner = _CutAtCommit(self._handler_connection.runner, lost)
        return await finish(self, changes)

    monkeypatch.setattr(PostgresTransaction, "_finish", finish_and_cut)
    async with Outlast(postgres_url, settings=QUICK) as app:
        pay = paying(app, thread)
        async with app.worker() as worker:
            handle = await pay.enqueue()
            job = await handle.wait(SOON)

            assert worker.refused == 0
        found = tuple(await statuses(app, handle))
    assert not lost
    assert job.state is State.SUCCEEDED
    assert found == (SERVED if place == "request" else SERVED[1:])
    assert await outside.fetchval("SELECT count(*) FROM effects") == 1

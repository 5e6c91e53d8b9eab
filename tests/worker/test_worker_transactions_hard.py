"""run.transaction() under strain: too long, too many at once, abused, or left behind."""

import asyncio
import sqlite3
import threading
from contextlib import suppress
from datetime import timedelta

import pytest
from worker_helpers import (
    AT_ONCE,
    PATIENCE,
    SOON,
    Child,
    all_slots_work,
    effects,
    make_effects,
    query,
    quick,
    statuses,
)

from outlast import Backoff, Run, State
from outlast.errors import TransactionTimeout

INSERT = "INSERT INTO effects VALUES (?, ?)"


@pytest.fixture
async def app(path):
    async with quick(path, lease="30m", transaction="60s") as app:
        await app._client.open()
        make_effects(path)
        yield app


def paying(app, work, **settings):
    """A thread handler that writes its effect and then does `work` inside its transaction."""

    @app.job(name="pay", **settings)
    def pay(run: Run) -> str | None:
        with run.transaction() as conn:
            conn.execute(INSERT, ("paid", run.token))
            return work(run, conn)

    return pay


def hasten(app):
    """The first transaction of this app may last 0.3 s and no longer."""
    begin, limits = app.store.begin, iter([timedelta(seconds=0.3)])

    async def begin_soon_over(*, within, **how):
        return await begin(within=next(limits, within), **how)

    app.store.begin = begin_soon_over


class Begun:
    """The transactions that an app has begun."""

    def __init__(self, app):
        self._begin, self._last = app.store.begin, None
        app.store.begin = self.begin

    async def begin(self, **how):
        self._last = await self._begin(**how)
        return self._last

    def overstay(self):
        """The time of the last one is over now."""
        timer = self._last._timer
        timer.cancel()
        timer.function()


@pytest.mark.parametrize("end", ["returns", "uses it", "uses it and goes on", "uses it after"])
async def test_a_transaction_that_takes_too_long_is_undone_and_told(app, path, end):
    begun, refusals = Begun(app), []

    def work(run, conn):
        if run.attempt > 1:
            return "in time"
        begun.overstay()
        if end == "uses it":
            conn.execute(INSERT, ("late", run.token))
        if end == "uses it and goes on":
            for _ in range(3):
                try:
                    conn.execute(INSERT, ("late", run.token))
                except (sqlite3.Error, TransactionTimeout) as error:
                    refusals.append(error)
        return "too late"

    if end == "uses it after":

        @app.job(name="pay", retry=AT_ONCE)
        def pay(run: Run) -> str:
            with run.transaction() as conn:
                conn.execute(INSERT, ("paid", run.token))
            if run.attempt > 1:
                return "in time"
            begun.overstay()
            with suppress(sqlite3.Error, TransactionTimeout):
                conn.execute(INSERT, ("late", run.token))
            return "too late"

    else:
        pay = paying(app, work, retry=AT_ONCE)
    async with app.worker():
        handle = await pay.enqueue()
        result = await handle.result(SOON)

        assert await all_slots_work(app)
    assert query(path, "SELECT what, token FROM effects") == [("paid", 2)]
    assert (result, len(refusals)) == ("in time", 3 if end == "uses it and goes on" else 0)
    assert await statuses(app, handle) == [("failed", "failed"), ("succeeded", None)]
    first, _ = await app.runs(handle.id)
    assert "TransactionTimeout" in first.error
    assert "60 s" in first.error


async def test_others_can_write_as_soon_as_the_time_is_over(app):
    hasten(app)
    inside, release = threading.Event(), threading.Event()

    def overstay_until_released(run, conn):
        inside.set()
        release.wait(100)

    pay = paying(app, overstay_until_released, retry=Backoff(1))
    async with app.worker(concurrency=1) as worker:
        handle = await pay.enqueue()
        await asyncio.to_thread(inside.wait)
        other = await asyncio.wait_for(pay.options(delay="1h").enqueue(), PATIENCE)
        release.set()
        job = await handle.wait(SOON)
        await worker.drained()

        assert worker.unwritten == []
    assert other.created
    assert job.state is State.DEAD_LETTER


@pytest.mark.slow
@pytest.mark.parametrize("role", ["overrun", "overrun_thread"])
async def test_a_handler_writing_at_full_speed_past_the_limit_leaves_nothing(app, path, role):
    """Neither a statement that waits while the rollback runs, nor a dead interpreter."""

    @app.job(retry=Backoff(10, base="1ms", cap="1ms"))
    async def pay() -> None: ...

    handles = await app.enqueue_many(pay.bind() for _ in range(3))
    async with await Child.start(path, role, transaction="20ms") as child:
        ends = [await child.outlives(handle.wait(SOON)) for handle in handles]

    assert {(job.state, job.failures) for job in ends} == {(State.DEAD_LETTER, 10)}
    assert effects(path) == []


async def test_more_transactions_than_threads_wait_for_each_other_in_order(path):
    async with quick(path, lease="30m", transaction="60s") as app:

        @app.job(retry=Backoff(1))
        async def pay(run: Run, n: int) -> int:
            async with run.transaction() as conn:
                conn.execute(INSERT, (f"{n}", run.token))
                await asyncio.sleep(0)
            return n

        handles = await app.enqueue_many(pay.bind(n) for n in range(60))
        make_effects(path)
        async with app.worker(concurrency=60):
            ends = [await handle.wait(SOON) for handle in handles]

    assert {job.state for job in ends} == {State.SUCCEEDED}
    assert sorted(map(int, effects(path))) == list(range(60))


async def test_a_handler_cancelled_while_it_waits_for_the_lock_does_not_leave_it_locked(path):
    inside, waiting, release = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with quick(path, lease="30m", transaction="60s", renew="50ms") as app:

        @app.job
        async def first(run: Run) -> None:
            async with run.transaction():
                inside.set()
                await release.wait()

        @app.job(max_runtime="100ms", retry=Backoff(1))
        async def second(run: Run) -> None:
            try:
                await inside.wait()
                async with run.transaction():
                    pass
            finally:
                waiting.set()

        handles = [await first.enqueue(), await second.enqueue()]
        async with app.worker():
            await waiting.wait()
            release.set()
            ends = [await handle.wait(SOON) for handle in handles]

            assert await all_slots_work(app)
    assert [job.state for job in ends] == [State.SUCCEEDED, State.DEAD_LETTER]


def commit_by_block(conn):
    with conn:
        conn.execute("SELECT 1")


ABUSE = {
    "commit": sqlite3.Connection.commit,
    "COMMIT": lambda conn: conn.execute("COMMIT"),
    "with": commit_by_block,
    "rollback": sqlite3.Connection.rollback,
    "executescript": lambda conn: conn.executescript("SELECT 1"),
    "close": sqlite3.Connection.close,
}


@pytest.mark.parametrize("how", ABUSE)
async def test_a_handler_that_ends_the_transaction_itself_is_told_so(app, path, how):
    def abuse(run, conn):
        ABUSE[how](conn)

    pay = paying(app, abuse, retry=Backoff(1))
    async with app.worker() as worker:
        handle = await pay.enqueue()
        job = await handle.wait(SOON)

        assert await all_slots_work(app)
        assert worker.refused == 0
    assert job.state is State.DEAD_LETTER
    assert await statuses(app, handle) == [("failed", "attempts_exhausted")]
    [run] = await app.runs(handle.id)
    assert "run.transaction()" in run.error
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


OVER = {
    "undone by SQLite": lambda conn: conn.execute("INSERT OR ROLLBACK INTO ids VALUES (1)"),
    "undone": sqlite3.Connection.rollback,
    "committed": sqlite3.Connection.commit,
}


@pytest.mark.parametrize("how", OVER)
async def test_no_write_gets_through_once_the_transaction_is_over(app, path, how):
    """Each would commit by itself, and again with every retry."""
    query(path, "CREATE TABLE ids (id INTEGER PRIMARY KEY)")
    query(path, "INSERT INTO ids VALUES (1)")

    def go_on_regardless(run, conn):
        with suppress(sqlite3.IntegrityError):
            OVER[how](conn)
        conn.execute(INSERT, ("late", run.token))

    pay = paying(app, go_on_regardless, retry=Backoff(2, base="1ms"))
    async with app.worker():
        job = await (await pay.enqueue()).wait(SOON)

        assert await all_slots_work(app)
    assert (job.state, job.failures) == (State.DEAD_LETTER, 2)
    assert "late" not in effects(path)


async def test_what_a_handler_sets_on_its_connection_does_not_disturb_the_finish(app, path):
    def work(run, conn):
        conn.row_factory = sqlite3.Row
        conn.text_factory = bytes
        conn.execute("PRAGMA foreign_keys = OFF")
        conn.execute("SAVEPOINT mine")
        conn.create_function("length", 1, lambda _: 0)
        return "finished"

    pay = paying(app, work)
    async with app.worker():
        result = await (await pay.enqueue()).result(SOON)

    assert (result, effects(path)) == ("finished", ["paid"])

"""run.transaction() on SQLite: a handler can neither end it nor wait for itself."""

import asyncio
import sqlite3
from contextlib import suppress

import pytest
from worker_helpers import AT_ONCE, SOON, all_slots_work, effects, make_effects, query, quick

from outlast import Backoff, Run, RunError, State

INSERT = "INSERT INTO effects VALUES (?, ?)"
BOTH = pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])


@pytest.fixture
async def app(path):
    async with quick(path, busy=60, lease="30m", transaction="5m") as app:
        await app._client.open()
        make_effects(path)
        yield app


def paying(app, thread, work, *, name="pay", **settings):
    """A handler that writes its effect and then does `work` inside its transaction."""
    if thread:

        @app.job(name=name, **settings)
        def pay(run: Run) -> str | None:
            with run.transaction() as conn:
                conn.execute(INSERT, ("paid", run.token))
                return work(conn)

    else:

        @app.job(name=name, **settings)
        async def pay(run: Run) -> str | None:
            async with run.transaction() as conn:
                conn.execute(INSERT, ("paid", run.token))
                return work(conn)

    return pay


def block(conn):
    with conn:
        conn.execute("SELECT 1")


def autocommit(conn):
    conn.isolation_level = None


ENDING = {
    "COMMIT": lambda conn: conn.execute("COMMIT"),
    "END": lambda conn: conn.cursor().execute("  end transaction"),
    "ROLLBACK": lambda conn: conn.execute("ROLLBACK"),
    "BEGIN": lambda conn: conn.execute("BEGIN IMMEDIATE"),
    "executescript": lambda conn: conn.executescript("CREATE TABLE IF NOT EXISTS more (n);"),
    "cursor's executescript": lambda conn: conn.cursor().executescript("SELECT 1"),
    "commit": lambda conn: conn.commit(),
    "rollback": lambda conn: conn.rollback(),
    "with": block,
    "commit of the base class": sqlite3.Connection.commit,
    "rollback of the base class": sqlite3.Connection.rollback,
    "script of the base class": lambda conn: sqlite3.Connection.executescript(conn, "SELECT 1"),
    "autocommit": autocommit,
}


@BOTH
@pytest.mark.parametrize("how", ENDING)
async def test_a_handler_that_tries_to_end_its_transaction_leaves_no_effect(app, path, how, thread):
    def go_on_regardless(conn):
        with suppress(sqlite3.Error, RunError):
            ENDING[how](conn)
        return "done"

    raising = paying(app, thread, ENDING[how], name="raises", retry=AT_ONCE)
    catching = paying(app, thread, go_on_regardless, name="catches", retry=AT_ONCE)
    async with app.worker():
        for pay in (raising, catching):
            handle = await pay.enqueue()
            job = await handle.wait(SOON)

            assert (job.state, job.failures) == (State.DEAD_LETTER, AT_ONCE.max_attempts)
            [*_, run] = await app.runs(handle.id)
            assert "leave commit, rollback and close to Outlast" in run.error
        assert await all_slots_work(app)
    assert effects(path) == []
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


@BOTH
async def test_savepoints_are_the_handlers_own(app, path, thread):
    def work(conn):
        conn.execute("SAVEPOINT mine")
        conn.execute(INSERT, ("undone", 0))
        conn.execute("ROLLBACK TO mine")
        conn.execute(INSERT, ("kept", 0))
        conn.execute("RELEASE mine")
        return "done"

    pay = paying(app, thread, work)
    async with app.worker():
        assert await (await pay.enqueue()).result(SOON) == "done"

    assert effects(path) == ["paid", "kept"]


@BOTH
@pytest.mark.parametrize("after", [False, True], ids=["inside", "after the block"])
async def test_a_write_that_would_wait_for_its_own_handler_is_refused_at_once(
    app, path, thread, after
):
    @app.job
    async def mail() -> None: ...

    writes = (mail.enqueue, lambda: app.queues.pause("mail"))

    async def refused(write):
        with pytest.raises(RunError, match="pass tx=conn"):
            await write()

    if thread:

        @app.job(name="pay", retry=Backoff(1))
        def pay(run: Run) -> None:
            with run.transaction() as conn:
                conn.execute(INSERT, ("paid", run.token))
                for write in () if after else writes:
                    asyncio.run(refused(write))
            for write in writes if after else ():
                asyncio.run(refused(write))

    else:

        @app.job(name="pay", retry=Backoff(1))
        async def pay(run: Run) -> None:
            async with run.transaction() as conn:
                conn.execute(INSERT, ("paid", run.token))
                for write in () if after else writes:
                    await refused(write)
            for write in writes if after else ():
                await refused(write)

    async with app.worker():
        job = await (await pay.enqueue()).wait(SOON)
        assert job.state is State.SUCCEEDED
        await mail.enqueue()

    assert effects(path) == ["paid"]


async def test_a_handler_whose_transaction_was_undone_may_enqueue(app):
    @app.job
    async def mail() -> None: ...

    @app.job
    async def pay(run: Run) -> str:
        with suppress(ValueError):
            async with run.transaction():
                raise ValueError
        return (await mail.enqueue()).id

    async with app.worker():
        assert await (await pay.enqueue()).result(SOON)

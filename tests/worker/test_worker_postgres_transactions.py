"""run.transaction() on PostgreSQL: the handler's own rows and the end of its run, or neither."""

import asyncio
import sys
import threading
from datetime import timedelta
from pathlib import Path

import asyncpg
import psycopg
import pytest
from pg_transaction_child import register
from worker_helpers import AT_ONCE, PATIENCE, QUICK, SOON, all_slots_work, statuses, with_roll_call

from outlast import Backoff, Cancel, Outlast, Run, RunError, Skip, State
from outlast.store.contract.jobs import Filter

CHILD = Path(__file__).with_name("pg_transaction_child.py")

both = pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])


@pytest.fixture
def url(postgres_url):
    return postgres_url


@pytest.fixture
async def app(url):
    async with with_roll_call(Outlast(url, settings=QUICK)) as app:
        await app._client.open()
        yield app


@pytest.fixture
async def outside(app, url):
    """Another connection, which sees what is committed; and the user's own table."""
    connection = await asyncpg.connect(url.partition("?")[0])
    await connection.execute(
        "DROP TABLE IF EXISTS effects; CREATE TABLE effects (what text, token integer)"
    )
    yield connection
    await connection.close()


@pytest.fixture
def effects(outside):
    async def found():
        return [row[0] for row in await outside.fetch("SELECT what FROM effects ORDER BY token")]

    return found


def paying(app, thread, *, inside=lambda _: None, after=lambda _: None, **settings):
    """A handler that writes its effect, does something inside its block, and something after."""
    if thread:

        @app.job(name="pay", **settings)
        def pay_in_thread(run: Run):
            with run.transaction() as conn:
                conn.execute("INSERT INTO effects VALUES ('paid', %s)", [run.token])
                inside(run)
            return after(run)

        return pay_in_thread

    @app.job(name="pay", **settings)
    async def pay(run: Run):
        async with run.transaction() as conn:
            await conn.execute("INSERT INTO effects VALUES ('paid', $1)", run.token)
            inside(run)
        return after(run)

    return pay


@both
async def test_effect_and_end_are_seen_at_the_same_moment(app, url, outside, thread):
    look = "SELECT (SELECT count(*) FROM effects), (SELECT count(*) FROM {}.ends)"
    look = look.format(app._store.address.schema)
    seen = []

    def ask(_):
        with psycopg.connect(url.partition("?")[0]) as other:
            seen.extend(other.execute(look).fetchall())

    pay = paying(app, thread, inside=ask, after=ask)
    async with app.worker() as worker:
        handle = await pay.enqueue()
        await handle.result(SOON)
        await worker.drained()

        assert (worker.refused, worker.unwritten) == (0, [])
    assert seen == [(0, 0), (0, 0)]
    assert tuple(await outside.fetchrow(look)) == (1, 1)


@both
@pytest.mark.parametrize("where", ["inside", "after"])
async def test_an_error_inside_or_after_the_block_undoes_the_effect(
    app, outside, effects, where, thread
):
    def fail(run):
        if run.attempt < 3:
            raise ValueError(where)

    pay = paying(app, thread, retry=AT_ONCE, **{where: fail})
    async with app.worker():
        handle = await pay.enqueue()
        await handle.result(SOON)

        assert await all_slots_work(app)
    assert await outside.fetchval("SELECT token FROM effects") == 3
    assert await effects() == ["paid"]
    assert [status for status, _ in await statuses(app, handle)] == ["failed"] * 2 + ["succeeded"]


@both
@pytest.mark.parametrize(
    ("value", "state", "kept"),
    [
        (Skip("nothing else"), State.SKIPPED, ["paid"]),
        (Cancel("no"), State.CANCELLED, []),
        ("x" * 300_000, State.DEAD_LETTER, []),
    ],
    ids=["skip", "cancel", "large result"],
)
async def test_only_an_end_that_counts_keeps_the_effect(app, effects, thread, value, state, kept):
    pay = paying(app, thread, after=lambda _: value, retry=Backoff(1))

    async with app.worker():
        job = await (await pay.enqueue()).wait(SOON)

        assert await all_slots_work(app)
    assert (job.state, await effects()) == (state, kept)


@both
async def test_a_transaction_that_takes_too_long_is_undone_and_told(url, outside, effects, thread):
    def overstay(run):
        if run.attempt == 1:
            threading.Event().wait(0.8)

    async with with_roll_call(Outlast(url, settings=QUICK)) as app:
        begin, limits = app.store.begin, iter([timedelta(seconds=0.6)])

        async def begin_soon_over(*, within, **how):
            return await begin(within=next(limits, within), **how)

        app.store.begin = begin_soon_over
        pay = paying(app, thread, inside=overstay, retry=AT_ONCE)
        async with app.worker():
            handle = await pay.enqueue()
            await handle.result(SOON)

            assert await all_slots_work(app)
        first, *_ = await app.runs(handle.id)

    assert await effects() == ["paid"]
    assert "TransactionTimeout" in first.error
    assert "0.6 s" in first.error


@both
async def test_a_job_enqueued_inside_is_part_of_it(app, outside, effects, thread):
    @app.job
    async def follow_up(n: int) -> int:
        return n

    if thread:

        @app.job(name="pay", retry=AT_ONCE)
        def pay(run: Run) -> str:
            with run.transaction() as conn:
                handle = asyncio.run(follow_up.options(tx=conn).enqueue(run.token))
            if run.attempt == 1:
                raise ValueError("so that both are undone")
            return handle.id

    else:

        @app.job(name="pay", retry=AT_ONCE)
        async def pay(run: Run) -> str:
            async with run.transaction() as conn:
                handle = await follow_up.options(tx=conn).enqueue(run.token)
            if run.attempt == 1:
                raise ValueError("so that both are undone")
            return handle.id

    async with app.worker():
        follower = app.handle(await (await pay.enqueue()).result(SOON))
        result = await follower.result(SOON)

    assert result == 2
    assert len(await app._store.find(Filter(type="follow_up"), limit=9)) == 1


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_a_handler_that_ends_the_transaction_itself_is_told_so(app, effects, thread):
    if thread:

        @app.job(name="pay", retry=Backoff(1))
        def pay(run: Run) -> None:
            with run.transaction() as conn:
                conn.execute("INSERT INTO effects VALUES ('paid', 1)")
                conn.execute("COMMIT")

    else:

        @app.job(name="pay", retry=Backoff(1))
        async def pay(run: Run) -> None:
            async with run.transaction() as conn:
                await conn.execute("INSERT INTO effects VALUES ('paid', 1)")
                await conn.execute("COMMIT")

    async with app.worker():
        handle = await pay.enqueue()
        job = await handle.wait(SOON)

        assert await all_slots_work(app)
    [run] = await app.runs(handle.id)
    assert (job.state, await effects()) == (State.DEAD_LETTER, [])
    assert "run.transaction()" in run.error


async def test_a_thread_without_psycopg_is_told_what_to_install(app, outside, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    pay = paying(app, True, retry=Backoff(1))

    async with app.worker():
        handle = await pay.enqueue()
        await handle.wait(SOON)

    [run] = await app.runs(handle.id)
    assert "pip install 'psycopg[binary]'" in run.error
    assert RunError.__name__ in run.error


PLACES = [
    ("handler_transaction.begin", "after"),
    ("handler_transaction.finish", "before"),
    ("handler_transaction.finish", "after"),
    ("unit_of_work.commit", "before"),
    ("unit_of_work.commit", "after"),
]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_worker_killed_in_between_leaves_both_or_neither(app, url, outside, effects, kind):
    register(app, kind)
    pay = app.registry.get("pay")
    lapse = "UPDATE {}.open_runs SET lease_until = 0"
    for place in PLACES:
        await outside.execute("TRUNCATE effects")
        handle = await pay.enqueue()
        child = await asyncio.create_subprocess_exec(sys.executable, str(CHILD), url, kind, *place)
        assert await asyncio.wait_for(child.wait(), PATIENCE) == -9

        ended = (await handle.read()).state is State.SUCCEEDED
        assert await effects() == (["paid"] if ended else []), place
        assert ended == (place == ("unit_of_work.commit", "after"))

        await outside.execute(lapse.format(app._store.address.schema))
        async with app.worker():
            await handle.result(SOON)
        assert await effects() == ["paid"], place

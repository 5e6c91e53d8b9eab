"""run.transaction(): one per run, in the right kind of block, and open to enqueues."""

import asyncio

import pytest
from worker_helpers import AT_ONCE, SOON, all_slots_work, effects, make_effects, query, quick

from outlast import Backoff, Run, RunError, State

INSERT = "INSERT INTO effects VALUES (?, ?)"


@pytest.fixture
async def app(path):
    async with quick(path) as app:
        await app._client.open()
        make_effects(path)
        yield app


async def test_there_is_one_transaction_per_run(app, path):
    reported = []

    @app.job
    async def pay(run: Run) -> None:
        block = run.transaction()
        async with block as conn:
            conn.execute(INSERT, ("paid", run.token))
        for again in (run.transaction, lambda: block):
            try:
                async with again():
                    pass
            except RunError as error:
                reported.append(str(error))

    async with app.worker():
        job = await (await pay.enqueue()).wait(SOON)

    assert (job.state, effects(path)) == (State.SUCCEEDED, ["paid"])
    assert len(reported) == 2
    assert all("one per run" in words for words in reported)


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_the_wrong_kind_of_block_is_refused_and_says_which_is_right(app, thread):
    if thread:

        @app.job(name="pay", retry=Backoff(1))
        def pay(run: Run) -> None:
            async def inner():
                async with run.transaction():
                    pass

            asyncio.run(inner())

    else:

        @app.job(name="pay", retry=Backoff(1))
        async def pay(run: Run) -> None:
            with run.transaction():
                pass

    async with app.worker():
        handle = await pay.enqueue()
        await handle.wait(SOON)

        assert await all_slots_work(app)
    [run] = await app.runs(handle.id)
    right = "`with run.transaction()`" if thread else "`async with run.transaction()`"
    assert right in run.error


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_a_job_enqueued_inside_is_part_of_it(app, path, thread):
    @app.job
    async def follow_up(n: int) -> int:
        return n

    if thread:

        @app.job(name="pay", retry=AT_ONCE)
        def pay(run: Run) -> str:
            with run.transaction() as conn:
                conn.execute(INSERT, ("paid", run.token))
                enqueue = follow_up.options(tx=conn).enqueue(run.token)
                handle = asyncio.run(enqueue)
            if run.attempt == 1:
                raise ValueError("so that both are undone")
            return handle.id

    else:

        @app.job(name="pay", retry=AT_ONCE)
        async def pay(run: Run) -> str:
            async with run.transaction() as conn:
                conn.execute(INSERT, ("paid", run.token))
                handle = await follow_up.options(tx=conn).enqueue(run.token)
            if run.attempt == 1:
                raise ValueError("so that both are undone")
            return handle.id

    async with app.worker():
        follower = app.handle(await (await pay.enqueue()).result(SOON))
        result = await follower.result(SOON)

    assert (result, effects(path)) == (2, ["paid"])
    assert query(path, "SELECT count(*) FROM outlast_jobs WHERE type = 'follow_up'") == [(1,)]

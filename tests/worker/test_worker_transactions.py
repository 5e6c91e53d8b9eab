"""run.transaction(): the handler's own rows and the end of its run, together or not at all."""

import asyncio

import pytest
from worker_helpers import (
    AT_ONCE,
    SOON,
    all_slots_work,
    effects,
    make_effects,
    query,
    quick,
    reaches,
    statuses,
)

from outlast import Backoff, Cancel, RetryAfter, Run, Skip, Snooze, State

INSERT = "INSERT INTO effects VALUES (?, ?)"


@pytest.fixture
async def app(path):
    async with quick(path, lease="30m", transaction="5m") as app:
        await app._client.open()
        make_effects(path)
        yield app


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_effect_and_end_are_seen_at_the_same_moment(app, path, thread):
    seen = []
    look = "SELECT (SELECT count(*) FROM effects), (SELECT count(*) FROM outlast_ends)"

    if thread:

        @app.job(name="pay")
        def pay(run: Run) -> int:
            with run.transaction() as conn:
                conn.execute(INSERT, ("paid", run.token))
                seen.extend(query(path, look))
            seen.extend(query(path, look))
            return 5

    else:

        @app.job(name="pay")
        async def pay(run: Run) -> int:
            async with run.transaction() as conn:
                conn.execute(INSERT, ("paid", run.token))
                seen.extend(query(path, look))
            seen.extend(query(path, look))
            return 5

    async with app.worker() as worker:
        handle = await pay.enqueue()
        result = await handle.result(SOON)
        await worker.drained()

        assert (worker.refused, worker.unwritten) == (0, [])
    assert seen == [(0, 0), (0, 0)]
    assert query(path, look) == [(1, 1)]
    assert (result, effects(path)) == (5, ["paid"])


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
@pytest.mark.parametrize("where", ["inside", "after"])
async def test_an_error_inside_or_after_the_block_undoes_the_effect(app, path, where, thread):
    def fail(run, place):
        if run.attempt < 3 and place == where:
            raise ValueError(place)

    if thread:

        @app.job(name="pay", retry=AT_ONCE)
        def pay(run: Run) -> None:
            with run.transaction() as conn:
                conn.execute(INSERT, ("paid", run.token))
                fail(run, "inside")
            fail(run, "after")

    else:

        @app.job(name="pay", retry=AT_ONCE)
        async def pay(run: Run) -> None:
            async with run.transaction() as conn:
                conn.execute(INSERT, ("paid", run.token))
                fail(run, "inside")
            fail(run, "after")

    async with app.worker():
        handle = await pay.enqueue()
        await handle.result(SOON)

        assert await all_slots_work(app)
    assert query(path, "SELECT what, token FROM effects") == [("paid", 3)]
    assert [status for status, _ in await statuses(app, handle)] == ["failed"] * 2 + ["succeeded"]


async def test_a_handler_that_catches_the_error_of_its_block_succeeds_without_the_effect(app, path):
    @app.job
    async def pay(run: Run) -> str:
        try:
            async with run.transaction() as conn:
                conn.execute(INSERT, ("paid", run.token))
                raise ValueError("changed my mind")
        except ValueError:
            return "did not pay"

    async with app.worker():
        result = await (await pay.enqueue()).result(SOON)

    assert (result, effects(path)) == ("did not pay", [])


@pytest.mark.parametrize(
    ("value", "state", "kept"),
    [
        (Skip("nothing else"), State.SKIPPED, ["paid"]),
        (Cancel("no"), State.CANCELLED, []),
        (RetryAfter("1ms"), State.DEAD_LETTER, []),
        (object(), State.DEAD_LETTER, []),
        ("x" * 300_000, State.DEAD_LETTER, []),
    ],
    ids=["skip", "cancel", "retry after", "unkept result", "large result"],
)
async def test_only_an_end_that_counts_keeps_the_effect(app, path, value, state, kept):
    @app.job(retry=Backoff(2, base="1ms"))
    async def pay(run: Run):
        async with run.transaction() as conn:
            conn.execute(INSERT, ("paid", run.token))
        return value

    async with app.worker():
        job = await (await pay.enqueue()).wait(SOON)

        assert await all_slots_work(app)
    assert (job.state, effects(path)) == (state, kept)


async def test_a_snooze_undoes_the_effect_and_the_next_run_may_leave_its_own(app, path):
    @app.job
    async def pay(run: Run) -> int | Snooze:
        async with run.transaction() as conn:
            conn.execute(INSERT, ("paid", run.token))
        return Snooze("1ms") if run.token == 1 else run.token

    async with app.worker():
        await (await pay.enqueue()).result(SOON)

    assert query(path, "SELECT token FROM effects") == [(2,)]


async def test_a_time_limit_inside_the_block_undoes_it_and_frees_the_lock_at_once(app, path):
    @app.job(max_runtime="50ms", retry=Backoff(1))
    async def slow(run: Run) -> None:
        async with run.transaction() as conn:
            conn.execute(INSERT, ("paid", run.token))
            await asyncio.Event().wait()

    async with app.worker():
        job = await (await slow.enqueue()).wait(SOON)

        assert await all_slots_work(app)
    assert (job.state, job.reason, effects(path)) == (State.DEAD_LETTER, "timeout", [])


async def test_stopping_past_the_grace_undoes_what_is_under_way(app, path):
    started = asyncio.Event()

    @app.job
    async def pay(run: Run) -> None:
        async with run.transaction() as conn:
            conn.execute(INSERT, ("paid", run.token))
            started.set()
            await asyncio.Event().wait()

    app.settings = app.settings.with_(grace="50ms")
    handle = await pay.enqueue()
    async with app.worker(concurrency=1):
        await started.wait()

    await reaches(handle, State.QUEUED)
    assert effects(path) == []
    assert await statuses(app, handle) == [("released", "shutdown")]

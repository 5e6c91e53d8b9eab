"""Everything at once, with workers killed in the middle of it."""

import asyncio
import random
from collections import Counter

import mixed_jobs
import pytest
from worker_helpers import Child, make_effects, query, quick

from outlast import State, TransitionRefused

JOBS = 300
KILLS = 3
SUCCEED = ("steady", "threaded", "flaky", "sleepy", "chained")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_in_a_storm_every_job_ends_once_and_every_effect_is_there_once(path):
    rng = random.Random(7)
    async with quick(path, lease="500ms", renew="50ms", concurrency=4, prefetch=10) as app:
        types = mixed_jobs.register(app)
        names = list(types)
        kinds = [names[n % len(names)] for n in range(JOBS)]
        rng.shuffle(kinds)
        # A part of the jobs is left to the other process, so that it is never killed idle.
        queues = ["child" if n % 3 == 0 else "default" for n in range(JOBS)]
        bound = [
            types[kind].options(queue=queue).bind(n=n)
            for n, (kind, queue) in enumerate(zip(kinds, queues, strict=True))
        ]
        await app._client.open()
        make_effects(path)

        handles, size = [], JOBS // KILLS
        async with app.worker(), app.worker():
            for wave in range(0, JOBS, size):
                async with await Child.start(path, "storm", lease="500ms", renew="50ms") as child:
                    handles += await app.enqueue_many(bound[wave : wave + size])
                    some = zip(handles[wave:], kinds[wave:], strict=False)
                    cancelling = asyncio.create_task(cancel_some(list(some), rng))
                    for _ in range(rng.randrange(2, 8)):
                        await child.says("started")
                await cancelling
            async with asyncio.timeout(120), app.worker(queues=["child"]):
                ends = await asyncio.gather(*(handle.wait() for handle in handles))

        await every_job_has_one_end(path)
        await failures_are_counted_by_runs(app, ends)
    by_kind = {kind: Counter() for kind in names}
    for kind, job in zip(kinds, ends, strict=True):
        by_kind[kind][job.state] += 1
    assert set(by_kind["endless"]) == {State.CANCELLED}
    assert set(by_kind["doomed"]) <= {State.DEAD_LETTER, State.CANCELLED}
    effects = Counter(int(what) for (what,) in query(path, "SELECT what FROM effects"))
    done = {
        n: 1
        for n, (kind, job) in enumerate(zip(kinds, ends, strict=True))
        if kind in SUCCEED and job.state is State.SUCCEEDED
    }
    assert effects == Counter(done)
    assert len(done) > JOBS // 2
    assert query(path, "SELECT count(*) FROM outlast_runs WHERE status = 'lost'")[0][0] >= KILLS


async def cancel_some(jobs, rng):
    """All the endless ones, and a few of the others, wherever they happen to be."""
    chosen = [(job, kind) for job, kind in jobs if kind == "endless" or rng.random() < 0.05]
    rng.shuffle(chosen)
    for handle, kind in chosen:
        try:
            await handle.cancel()
        except TransitionRefused:
            assert kind != "endless"
        await asyncio.sleep(0.005)


async def every_job_has_one_end(path):
    left = "SELECT (SELECT count(*) FROM outlast_waiting), (SELECT count(*) FROM outlast_open_runs)"
    assert query(path, left) == [(0, 0)]
    assert query(path, "SELECT count(*) FROM outlast_ends") == query(
        path, "SELECT count(*) FROM outlast_jobs"
    )
    assert query(path, "SELECT count(*) FROM outlast_runs WHERE status = 'succeeded'") == query(
        path, "SELECT count(*) FROM outlast_ends WHERE state = 'succeeded'"
    )
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


async def failures_are_counted_by_runs(app, ends):
    for job in ends:
        chain = await app._store.chain(job.id)
        runs = [run for each in chain for run in await app.runs(each.id)]
        counted = [run for run in runs if run.status in {"failed", "lost"}]
        assert job.failures == len(counted)
        assert job.losses == len([run for run in runs if run.status == "lost"])
        assert len({(run.job_id, run.token) for run in runs}) == len(runs)

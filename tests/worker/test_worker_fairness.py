"""A worker that holds work ready must not let that work overtake what it may not hold ready."""

import asyncio
from datetime import timedelta

import pytest
from worker_world import quick

from holdfast import Backoff
from holdfast.core.run import Holder

BACKLOG = 600
DEAD = Holder(instance_id="dead", boot_id="earlier")


@pytest.mark.parametrize("delivery", ["lease", "chain"])
async def test_job_that_only_a_free_place_may_take_is_not_passed_over_for_others(path, delivery):
    """First in its queue, but lost once, or `chain`: neither is ever taken to lie in store."""
    done = []
    async with quick(path, concurrency=2, prefetch=50) as app:

        @app.job
        async def plain(n: int) -> None:
            await asyncio.sleep(0.005)
            done.append(n)

        @app.job(delivery=delivery, retry=Backoff(3))
        async def urgent() -> int:
            return len(done)

        first = await urgent.options(priority=5).enqueue() if delivery == "lease" else None
        if first:
            brief = timedelta(milliseconds=500)  # over when work is held ready
            await app.store.claim(DEAD, queue="default", types=["urgent"], limit=1, lease=brief)
        await app.enqueue_many(plain.bind(n) for n in range(BACKLOG))
        async with app.worker():
            while len(done) < 20:  # noqa: ASYNC110 - until it holds work ready
                await asyncio.sleep(0.001)
            first = first or await urgent.options(priority=5).enqueue()
            passed = await first.result("20s")

    assert passed < BACKLOG / 2

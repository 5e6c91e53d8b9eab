"""Jobs that wait for a time start when it comes, not at the next poll."""

import asyncio
from datetime import timedelta

import pytest
from worker_helpers import SOON, quick, until

from outlast import Backoff, Run
from outlast.core.run import Claims
from outlast.worker.dispatcher import FIRST_DUE_BACKOFF_S, Dispatcher

NO_POLL = {"poll": "10m", "tick": "10m"}
"""Without the due time nothing would start before the test is over."""

SHORT = "300ms"
LATER = 2 * timedelta(milliseconds=300)


@pytest.fixture
async def patient(path):
    async with quick(path, **NO_POLL) as app:
        yield app


async def test_delayed_job_starts_when_it_is_due(patient):
    @patient.job
    async def noop() -> int:
        return 1

    async with patient.worker():
        handle = await noop.options(delay=SHORT).enqueue()

        assert await handle.result(SOON) == 1
        assert await handle.read() is not None


async def test_delayed_job_stored_before_the_worker_starts_when_it_is_due(patient):
    @patient.job
    async def noop() -> int:
        return 1

    handle = await noop.options(delay=SHORT).enqueue()
    async with patient.worker():
        assert await handle.result(SOON) == 1


async def test_delayed_job_of_another_store_object_starts_when_it_is_due(path, patient):
    @patient.job(name="noop")
    async def noop() -> int:
        return 1

    async with quick(path) as other:

        @other.job(name="noop")
        async def elsewhere() -> int:
            raise AssertionError("no worker of this app runs")

        async with patient.worker():
            await (await noop.enqueue()).wait(SOON)
            handle = await elsewhere.options(delay=SHORT).enqueue()

            assert await handle.result(SOON) == 1


async def test_retry_starts_when_it_is_due(patient):
    @patient.job(retry=Backoff(3, base=SHORT, jitter=False))
    async def second_time(run: Run) -> int:
        if run.attempt == 1:
            raise ConnectionError("not yet")
        return run.attempt

    async with patient.worker():
        assert await (await second_time.enqueue()).result(SOON) == 2


async def test_earlier_job_shortens_the_wait_for_a_later_one(patient):
    @patient.job
    async def noop(n: int) -> int:
        return n

    async with patient.worker():
        last = await noop.options(delay=LATER).enqueue(2)
        first = await noop.options(delay=SHORT).enqueue(1)

        assert [await each.result(SOON) for each in (first, last)] == [1, 2]


async def test_job_of_a_busy_worker_is_not_looked_for_again_and_again(patient):
    """No slot is free when it becomes due: the end of a run is what it waits for."""
    release = asyncio.Event()

    @patient.job
    async def block() -> None:
        await release.wait()

    @patient.job(delivery="linked")
    async def noop() -> int:
        return 1

    async with patient.worker(concurrency=1) as worker:
        blocked = await block.enqueue()
        handle = await noop.options(delay=SHORT).enqueue()
        claims = _count_claims(patient.store)
        await until(lambda: worker._engine._dispatcher.claimed_count == 1)

        async def is_due():
            job = await handle.read()
            return job.available_at < await patient.store.now()

        await until(is_due)
        busy = claims[0]
        release.set()
        await blocked.wait(SOON)

        assert await handle.result(SOON) == 1
        assert busy <= 3


def _count_claims(store):
    claims, claim = [0], store.claim

    async def counted(*args, **kwargs):
        claims[0] += 1
        return await claim(*args, **kwargs)

    store.claim = counted
    return claims


class Tempting:
    """A store with nothing to claim, and always a job that becomes due this moment."""

    def __init__(self):
        self.claims = 0

    async def claim(self, *args, **kwargs):
        self.claims += 1
        return Claims(due_in=timedelta())


class NoPool:
    prefetched = ()


async def test_looks_in_vain_become_rarer_until_they_are_polls():
    """Each other worker may be first at every due time, or the queue may be paused."""
    dispatcher = _dispatcher(Tempting(), poll=timedelta(seconds=0.5))
    pauses = []
    for _ in range(8):
        await dispatcher._claim_and_log_errors()
        pauses.append(dispatcher._until_due())
        dispatcher._is_due_look = True

    doubled = [FIRST_DUE_BACKOFF_S * 2**n for n in range(1, 8)]
    assert pauses[0] < FIRST_DUE_BACKOFF_S
    assert pauses[1:] == pytest.approx([min(each, 0.5) for each in doubled])


def _dispatcher(store, poll):
    return Dispatcher(
        store,
        None,
        NoPool(),
        queues=["default"],
        types=["noop"],
        concurrency=1,
        prefetch=0,
        lease=timedelta(seconds=15),
        poll=poll,
        on_claimed=lambda _: None,
        lease_capacity=lambda: 100,
        is_busy=lambda: False,
    )

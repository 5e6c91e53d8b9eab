"""The synchronous bridge: which threads and loops may call it, and what it gives back."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from outlast import JobNotFound, WaitTimeout
from outlast.errors import StoreClosed, SyncMisused

from .sync_helpers import drained, never_awaited, threads


def test_the_same_verbs_can_be_waited_for(app, send, wait):
    job = wait(send.enqueue(3))
    wait(drained(app))

    assert wait(job.result(timeout="2m")) == 6
    assert wait(app.get(job.id)).state == "succeeded"


def test_an_error_is_the_coroutines_own(app, send, wait):
    with pytest.raises(JobNotFound):
        wait(app.get("nothing"))
    job = wait(send.enqueue(3))
    with pytest.raises(WaitTimeout):
        wait(job.result(timeout="10ms"))


def test_nothing_starts_before_it_is_used(app, send):
    before = threading.active_count()

    bridge = app.sync()

    assert threading.active_count() == before
    bridge.close()


def test_many_threads_may_call_at_once(send, app, wait):
    with ThreadPoolExecutor(16) as pool:
        jobs = list(pool.map(lambda number: wait(send.enqueue(number)), range(200)))
        wait(drained(app))
        results = list(pool.map(lambda job: wait(job.result("2m")), jobs))

    assert results == [2 * number for number in range(200)]
    assert len(threads()) == 1


def test_many_threads_may_start_it_at_once(app, send):
    bridge = app.sync()
    gate = threading.Barrier(8)

    def first(number):
        gate.wait(120)
        return bridge(send.enqueue(number))

    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(first, range(8)))

    assert len({job.id for job in jobs}) == 8
    assert len(threads()) == 1
    bridge.close()
    assert threads() == []


def test_an_async_iterator_can_be_gone_through(app, send, wait):
    jobs = [wait(send.options(delay="1h").enqueue(number)) for number in range(3)]
    for job in jobs:
        wait(job.cancel())

    assert [event.job_id for event in wait.each(app.event_stream())] == [job.id for job in jobs]
    assert list(wait.each(app.event_stream(after=99))) == []


def test_an_iterator_that_was_left_is_closed(app, send, wait):
    wait(wait(send.options(delay="1h").enqueue(1)).cancel())
    listeners = app.store._subscribers._wakes
    events = wait.each(app.event_stream(follow=True))
    assert next(events).kind == "cancelled"
    assert len(listeners) == 1

    events.close()

    assert len(listeners) == 0


def test_another_bridge_opens_the_app_again(app, send):
    with app.sync() as wait:
        first = wait(send.enqueue(1))
    with app.sync() as wait:
        assert wait(app.get(first.id)).state == "queued"


def test_an_app_can_go_from_loop_to_loop(app, send):
    async def wait_for_one():
        """Waits, and leaves the app open, with all that it keeps for this loop."""
        job = await send.enqueue(1)
        waiting = [asyncio.create_task(job.result("2m")) for _ in range(3)]
        await drained(app)
        return [await each for each in waiting]

    for _ in range(3):
        assert asyncio.run(wait_for_one()) == [2, 2, 2]
    assert len(app.store._subscribers._wakes) <= 1, "what belonged to closed loops listens no more"
    with app.sync() as wait:
        assert wait(wait_for_one()) == [2, 2, 2]


def test_two_loops_may_wait_with_one_app_at_once(app, send, wait):
    job = wait(send.enqueue(4))
    waits = threading.Event()

    async def from_another_loop():
        result = asyncio.create_task(job.result("2m"))
        await asyncio.sleep(0)
        waits.set()
        return await result

    with ThreadPoolExecutor(2) as pool:
        here = pool.submit(wait, job.result("2m"))
        there = pool.submit(asyncio.run, from_another_loop())
        assert waits.wait(120)
        wait(drained(app))

        assert (here.result(10), there.result(10)) == (8, 8)


def test_who_waits_on_another_loop_learns_that_the_app_was_closed(app, send):
    waits = threading.Event()

    async def from_another_loop(job):
        await app.get(job.id)
        waiting = app._client._waiting.mine()
        begin = waiting._start

        def begun():
            begin()
            waits.set()

        waiting._start = begun
        return await job.result("2m")

    with ThreadPoolExecutor(1) as pool:
        with app.sync() as wait:
            there = pool.submit(asyncio.run, from_another_loop(wait(send.enqueue(1))))
            assert waits.wait(120)
        with pytest.raises(StoreClosed):
            there.result(10)


async def test_inside_a_running_loop_it_refuses(app, send):
    bridge = app.sync()

    def misuse():
        with pytest.raises(SyncMisused, match="await the coroutine instead"):
            bridge(send.enqueue(1))

    assert never_awaited(misuse) == []
    for verb in (bridge.__enter__, bridge.close):
        with pytest.raises(SyncMisused, match="runs an event loop"):
            verb()
    assert threads() == []


def test_on_its_own_thread_it_refuses(app, send, wait):
    async def inside():
        wait(send.enqueue(1))

    def misuse():
        with pytest.raises(SyncMisused, match="runs an event loop"):
            wait(inside())

    assert never_awaited(misuse) == []
    assert wait(send.enqueue(2)).created


def test_something_else_than_a_coroutine_is_refused(app, send, wait):
    for wrong in (3, None, send, app.event_stream()):
        with pytest.raises(SyncMisused, match="give it a coroutine"):
            wait(wrong)

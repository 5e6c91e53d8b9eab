"""The synchronous bridge: who may call it, what it gives back, and how it ends."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as really_wait

import pytest

from outlast import JobNotFound, Outlast, WaitTimeout
from outlast.errors import ForeignStore, StoreClosed, SyncMisused
from outlast.sync import Sync

NEVER_CLOSED = """
import asyncio, sys
from outlast import Outlast
app = Outlast(f"sqlite:///{sys.argv[1]}")
send = app.job(name="send")(lambda: None)
wait = app.sync()
wait(send.enqueue())
print("stored", flush=True)
"""


@pytest.fixture
def app(tmp_path):
    return Outlast(f"sqlite:///{tmp_path / 'jobs.db'}", poll="20ms", tick="20ms")


@pytest.fixture
def send(app):
    @app.job
    def send(number: int) -> int:
        return number * 2

    return send


@pytest.fixture
def wait(app):
    with app.sync() as wait:
        yield wait


async def drained(app):
    async with app.worker() as worker:
        await worker.drained()


def threads():
    return [each for each in threading.enumerate() if each.name == "outlast-sync"]


def never_awaited(function):
    """Whether a coroutine was thrown away while that was called."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
        gc.collect()
    return [str(each.message) for each in caught if "never awaited" in str(each.message)]


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


def test_closing_closes_the_app_and_ends_the_thread(app, send):
    with app.sync() as wait:
        wait(send.enqueue(1))
        assert len(threads()) == 1

    assert threads() == []
    with pytest.raises(StoreClosed):
        asyncio.run(send.enqueue(2))
    wait.close()


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


def test_after_the_close_it_says_so(app, send):
    with app.sync() as wait:
        pass

    def misuse():
        with pytest.raises(SyncMisused, match="was closed; make another"):
            wait(send.enqueue(1))

    assert never_awaited(misuse) == []
    with pytest.raises(SyncMisused, match="was closed"):
        wait.__enter__()


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


def test_closing_waits_for_what_is_under_way(app, send, monkeypatch):
    begun, waits, go_on = threading.Event(), threading.Event(), threading.Event()

    async def slow():
        begun.set()
        await asyncio.to_thread(go_on.wait, 10)
        return (await send.enqueue(1)).created

    def waiting(futures, timeout):
        waits.set()
        return really_wait(futures, timeout)

    monkeypatch.setattr("outlast.sync.wait", waiting)
    with ThreadPoolExecutor(2) as pool:
        bridge = app.sync()
        running = pool.submit(bridge, slow())
        assert begun.wait(120)
        closing = pool.submit(bridge.close)
        assert waits.wait(120)
        assert not closing.done()
        go_on.set()

        assert running.result(10) is True
        closing.result(10)


def test_closing_does_not_wait_for_ever(app):
    begun = threading.Event()

    async def endless():
        begun.set()
        await asyncio.Event().wait()

    bridge = Sync(app._client.open, app.close, timeout=0.1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(bridge, endless())
        assert begun.wait(120)
        bridge.close()

        with pytest.raises(SyncMisused, match="cancelled"):
            running.result(10)
    assert threads() == []


@pytest.fixture
def ctrl_c():
    """Heard as at a terminal, also where whoever started the tests had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_cancels_the_coroutine_and_is_raised(app, send, wait):
    cancelled = threading.Event()

    async def endless():
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(KeyboardInterrupt):
        wait(endless())

    assert cancelled.is_set(), "it was over before anybody went on"
    assert wait(send.enqueue(1)).created


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_an_iterator_closes_it(app, wait):
    closed = threading.Event()

    async def numbers():
        try:
            yield 1
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            closed.set()

    heard = []
    with pytest.raises(KeyboardInterrupt):
        heard.extend(wait.each(numbers()))

    assert closed.is_set()


def test_a_coroutine_that_exits_ends_the_bridge_and_hangs_nobody(app, send):
    async def leave():
        raise SystemExit(3)

    with app.sync() as wait:
        with pytest.raises(SystemExit):
            wait(leave())
        for thread in threads():
            thread.join(120)
        with pytest.raises(SyncMisused):
            wait(send.enqueue(1))
    with pytest.raises(StoreClosed):
        asyncio.run(send.enqueue(2))


def test_what_is_sent_to_a_loop_that_is_ending_hangs_nobody(app):
    ending, sent = threading.Event(), threading.Event()

    async def leave():
        raise SystemExit(3)

    async def linger():
        try:
            await asyncio.Event().wait()
        finally:  # the loop waits for this before it closes
            ending.set()
            await asyncio.to_thread(sent.wait)

    async def late():
        sent.set()
        await asyncio.Event().wait()

    with app.sync() as wait, ThreadPoolExecutor(2) as pool:
        lingering = pool.submit(wait, linger())
        with pytest.raises(SystemExit):
            wait(leave())
        assert ending.wait(120)
        waiting = pool.submit(wait, late())
        done, _ = really_wait([lingering, waiting], 10)
        assert len(done) == 2
        with pytest.raises(SyncMisused):
            waiting.result()


def test_a_store_that_cannot_be_opened_is_told_at_once(tmp_path):
    (tmp_path / "jobs.db").write_text("no database at all, but long enough to look at" * 100)
    bridge = Outlast(f"sqlite:///{tmp_path / 'jobs.db'}").sync()

    with pytest.raises(ForeignStore):
        bridge.__enter__()

    assert threads() == []
    bridge.close()


@pytest.mark.filterwarnings("ignore:This process.*fork")
def test_in_a_forked_child_it_refuses(app, send, wait):
    wait(send.enqueue(1))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            wait(send.enqueue(2))
        except SyncMisused as error:
            code = 7 if "after the fork" in str(error) else 2
        finally:
            wait.close()
            os._exit(code)

    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 7
    assert wait(send.enqueue(3)).created


@pytest.mark.slow
def test_who_forgets_to_close_it_can_still_end(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", NEVER_CLOSED, str(tmp_path / "jobs.db")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "stored\n", "")

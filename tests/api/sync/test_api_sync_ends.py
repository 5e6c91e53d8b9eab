"""The synchronous bridge: how it ends, by a close, an interrupt, an exit or a fork."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as really_wait

import pytest

from outlast import Outlast
from outlast.errors import ForeignStore, StoreClosed, SyncMisused
from outlast.sync import Sync

from .sync_helpers import never_awaited, threads

NEVER_CLOSED = """
import asyncio, sys
from outlast import Outlast
app = Outlast(f"sqlite:///{sys.argv[1]}")
send = app.job(name="send")(lambda: None)
wait = app.sync()
wait(send.enqueue())
print("stored", flush=True)
"""


def test_closing_closes_the_app_and_ends_the_thread(app, send):
    with app.sync() as wait:
        wait(send.enqueue(1))
        assert len(threads()) == 1

    assert threads() == []
    with pytest.raises(StoreClosed):
        asyncio.run(send.enqueue(2))
    wait.close()


def test_after_the_close_it_says_so(app, send):
    with app.sync() as wait:
        pass

    def misuse():
        with pytest.raises(SyncMisused, match="was closed; make another"):
            wait(send.enqueue(1))

    assert never_awaited(misuse) == []
    with pytest.raises(SyncMisused, match="was closed"):
        wait.__enter__()


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

    received = []
    with pytest.raises(KeyboardInterrupt):
        received.extend(wait.each(numbers()))

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

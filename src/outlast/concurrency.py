"""Event loops in threads: a loop with its own thread, and one value per event loop."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Step = Callable[[], Coroutine[Any, Any, object]]


class PerLoop(Generic[T]):
    """One value per event loop, made on first use; any thread may call it.

    Args:
        make: Returns the value for a loop that has none yet.
        drop: Receives the values of loops that have been closed since.
    """

    def __init__(self, make: Callable[[], T], drop: Callable[[T], object] = lambda _: None) -> None:
        self._make = make
        self._drop = drop
        self._made: dict[asyncio.AbstractEventLoop, T] = {}
        self._lock = threading.Lock()

    def mine(self) -> T:
        """Return the value of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._made:
                self._drop_closed()
                self._made[loop] = self._make()
            return self._made[loop]

    def take_all(self) -> list[tuple[asyncio.AbstractEventLoop, T]]:
        """Remove and return the values of all open loops, each with its loop."""
        with self._lock:
            self._drop_closed()
            made, self._made = self._made, {}
        return list(made.items())

    def _drop_closed(self) -> None:
        for loop in [each for each in self._made if each.is_closed()]:
            self._drop(self._made.pop(loop))


class LoopThread:
    """An event loop in a daemon thread, started by the constructor.

    Args:
        name: Name of the thread.
        on_end: Called in the thread after the loop has ended, for whatever reason.
    """

    def __init__(self, name: str, on_end: Callable[[], object]) -> None:
        ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=_run_until_ended, args=(ready, on_end), name=name, daemon=True
        )
        self._thread.start()
        self._loop, self._ended = ready.result()

    @property
    def has_ended(self) -> bool:
        """Whether the loop is closed; a coroutine that exits the interpreter closes it too."""
        return self._loop.is_closed()

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call a function on the loop; RuntimeError if the loop has ended."""
        self._loop.call_soon_threadsafe(callback)

    def perform(self, step: Step, *, within: float | None = None) -> None:
        """Run a coroutine on the loop and wait for its end; without a loop, run it here.

        Raises:
            TimeoutError: The coroutine took longer than `within` seconds.
        """
        if self.has_ended:
            asyncio.run(asyncio.wait_for(step(), within))
            return
        done = asyncio.run_coroutine_threadsafe(asyncio.wait_for(step(), within), self._loop)
        try:
            done.result()
        except BaseException:
            done.cancel()
            raise

    def end(self, timeout_s: float) -> None:
        """Cancel the tasks of the loop and wait up to `timeout_s` for the thread."""
        with suppress(RuntimeError):  # the loop has ended already
            self.call_soon(self._ended.set)
        self._thread.join(timeout_s)


class LazyLoopThread:
    """An event loop in a daemon thread, started on first use and again after a fork or a stop.

    Any thread may call it. It outlives the loops of its callers.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread, int] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine on the loop; cancelling the returned future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._started())

    def call(self, callback: Callable[[], object]) -> None:
        """Call a function on the loop soon; no-op if the loop is stopped meanwhile."""
        with suppress(RuntimeError):
            self._started().call_soon_threadsafe(callback)

    def stop(self) -> None:
        """Cancel the tasks of the loop and wait for the thread; no-op if none was started."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None and running[2] == os.getpid():
            loop, thread, _ = running
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._running is None or self._running[2] != os.getpid():
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_run_until_stopped, args=(loop,), name=self._name, daemon=True
                )
                thread.start()
                self._running = loop, thread, os.getpid()
            return self._running[0]


def _run_until_ended(
    ready: "Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]", on_end: Callable[[], object]
) -> None:
    async def serve() -> None:
        ended = asyncio.Event()
        ready.set_result((asyncio.get_running_loop(), ended))
        await ended.wait()

    with suppress(KeyboardInterrupt, SystemExit):  # raised by a coroutine: its caller gets it
        asyncio.run(serve())
    on_end()


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()

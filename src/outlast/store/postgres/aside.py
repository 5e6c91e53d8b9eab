"""An event loop on a background thread, independent of the callers' loops."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop on a thread, started by the first use; thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread, int] | None = None

    def run(self, step: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the thread; cancelling the future cancels the coroutine."""
        return asyncio.run_coroutine_threadsafe(step, self._started())

    def call(self, step: Callable[[], object]) -> None:
        """Call a function on the thread soon; a no-op if the thread was stopped meanwhile."""
        with suppress(RuntimeError):
            self._started().call_soon_threadsafe(step)

    def stop(self) -> None:
        """Cancel every task of the thread and join it; a no-op if it does not run."""
        with self._guard:
            running, self._running = self._running, None
        if running is not None and running[2] == os.getpid():
            loop, thread, _ = running
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._running is None or self._running[2] != os.getpid():
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_serve, args=(loop,), name="outlast-loop-thread", daemon=True
                )
                thread.start()
                self._running = loop, thread, os.getpid()
            return self._running[0]


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()

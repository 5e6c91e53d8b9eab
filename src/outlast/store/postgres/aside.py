"""A thread with a loop of its own, for what must go on whatever the callers' loops do."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Begins when it is first needed. Any thread may hand it something."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread, int] | None = None

    def run(self, step: Coroutine[Any, Any, T]) -> "Future[T]":
        """What it gives, in a while; cancelling that cancels the step."""
        return asyncio.run_coroutine_threadsafe(step, self._begun())

    def call(self, step: Callable[[], object]) -> None:
        """Have it done soon; without a word if the thread has been stopped meanwhile."""
        with suppress(RuntimeError):
            self._begun().call_soon_threadsafe(step)

    def stop(self) -> None:
        """Cancel whatever is under way there, and wait for the thread."""
        with self._guard:
            running, self._running = self._running, None
        if running is not None and running[2] == os.getpid():
            loop, thread, _ = running
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _begun(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._running is None or self._running[2] != os.getpid():
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_serve, args=(loop,), name="outlast-aside", daemon=True
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

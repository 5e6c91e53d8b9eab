"""Synchronous bridge: an event loop in a thread that runs coroutines for sync code."""

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterable, Awaitable, Coroutine, Iterator
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from outlast.concurrency import LoopThread, Step
from outlast.errors import SyncMisused

T = TypeVar("T")

CLOSE_TIMEOUT_S: Final = 30.0
"""Seconds that `close` waits for pending calls, and again for the app to close."""


class Sync:
    """Runs coroutines for sync code: `with app.sync() as wait: job = wait(send.enqueue(3))`.

    Thread-safe. The first call opens the app; the end of the block waits for pending calls and
    closes it.
    """

    def __init__(self, opening: Step, closing: Step, *, timeout: float = CLOSE_TIMEOUT_S) -> None:
        self._opening = opening
        self._closing = closing
        self._timeout = timeout
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._pending: set[Future[Any]] = set()
        self._loop: LoopThread | None = None
        self._closed = False

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result, or raise its error.

        Ctrl-C cancels the coroutine and raises KeyboardInterrupt. Raises SyncMisused, before the
        coroutine starts, on a thread with a running event loop, after `close`, and in a forked
        process.
        """
        if not inspect.iscoroutine(coroutine):
            what = type(coroutine).__name__
            raise SyncMisused(f"it was given a {what}; give it a coroutine: wait(send.enqueue(3))")
        call: Call[T] = Call(coroutine)
        try:
            self._begin(call)
            return call.done.result()
        except BaseException:  # the error of the coroutine, or Ctrl-C at any point
            call.abandon(self._timeout)
            raise

    def each(self, items: AsyncIterable[T]) -> Iterator[T]:
        """Iterate over an async iterator: `for event in wait.each(app.event_stream()):`."""
        iterator = aiter(items)
        try:
            while True:
                try:
                    item = self(_awaited(anext(iterator)))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if inspect.isasyncgen(iterator) and not self._closed:
                self(_awaited(iterator.aclose()))

    def close(self) -> None:
        """Wait for pending calls, up to a timeout, and close the app; idempotent."""
        if self._pid != os.getpid():
            return  # the thread is the parent's
        _require_no_loop()
        with self._lock:
            is_first, self._closed = not self._closed, True
        if is_first and self._loop is not None:
            wait(self._pending.copy(), self._timeout)
            try:
                self._loop.perform(self._closing, within=self._timeout)
            finally:
                self._loop.end(self._timeout)

    def __enter__(self) -> Self:
        self._usable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self, call: "Call[Any]") -> None:
        loop = self._usable()
        with self._lock:
            self._require_open()
            self._pending.add(call.done)
            call.done.add_done_callback(self._pending.discard)
            call.begin(loop)

    def _usable(self) -> LoopThread:
        """Return the loop, started if necessary; SyncMisused if it cannot be used here."""
        if self._pid != os.getpid():
            raise SyncMisused("this bridge belongs to the parent process; make one after the fork")
        _require_no_loop()
        with self._lock:
            self._require_open()
            if self._loop is None:
                self._loop = self._started()
            return self._loop

    def _require_open(self) -> None:
        if self._closed or (self._loop is not None and self._loop.has_ended):
            raise SyncMisused("this bridge was closed; make another with app.sync()")

    def _give_up(self) -> None:
        """Fail the pending calls: the loop has ended and will not run them."""
        for done in self._pending.copy():
            with suppress(InvalidStateError):
                done.set_exception(SyncMisused("the loop of this bridge ended; make another"))

    def _started(self) -> LoopThread:
        loop = LoopThread("outlast-sync", self._give_up)
        try:
            loop.perform(self._opening)
        except BaseException:
            loop.end(self._timeout)
            raise
        return loop


class Call(Generic[T]):
    """One coroutine on the loop; `done` gets its outcome when the coroutine has ended."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.done: Future[T] = Future()
        self._coroutine = coroutine
        self._loop: LoopThread | None = None
        self._task: asyncio.Task[T] | None = None

    def begin(self, loop: LoopThread) -> None:
        """Start the coroutine on the loop."""
        self._loop = loop
        try:
            loop.call_soon(self._start)
        except RuntimeError as error:
            raise SyncMisused("the loop of this bridge ended; make another") from error

    def abandon(self, timeout: float) -> None:
        """Cancel the coroutine and wait for its end, up to a timeout."""
        if self.done.done():
            return
        if self._loop is None or self._loop.has_ended:
            self._drop()
            return
        with suppress(RuntimeError):  # the loop has just ended, and `done` with it
            self._loop.call_soon(self._cancel)
        wait([self.done], timeout)

    def _drop(self) -> None:
        self._coroutine.close()  # avoids the warning "was never awaited"
        self.done.cancel()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self._finish)

    def _cancel(self) -> None:
        if self._task is None:
            self._drop()  # the caller was interrupted before the start
        else:
            self._task.cancel()

    def _finish(self, task: "asyncio.Task[T]") -> None:
        if task.cancelled():
            self.done.set_exception(
                SyncMisused("it was cancelled: the bridge was closed before it could end")
            )
        elif (error := task.exception()) is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(task.result())


def _require_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise SyncMisused(
        "this thread runs an event loop, which waiting here would stop; await the coroutine instead"
    )


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable

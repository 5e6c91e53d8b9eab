"""The synchronous bridge: one loop in one thread, on which anybody's coroutine is waited for."""

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

PATIENCE: Final = 30.0
"""Seconds that closing gives to what is under way, and again to letting go of the app."""


class Sync:
    """Waits for coroutines: `with app.sync() as wait: job = wait(send.enqueue(3))`.

    Any number of threads may call it. It opens the app when it is first used, and closes it at
    the end, after what is under way.
    """

    def __init__(self, opening: Step, closing: Step, *, patience: float = PATIENCE) -> None:
        self._opening = opening
        self._closing = closing
        self._patience = patience
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._under_way: set[Future[Any]] = set()
        self._loop: LoopThread | None = None
        self._closed = False

    def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What it returns, or the error it raises. Ctrl-C cancels it, and is raised.

        SyncMisused, and nothing has begun, on a thread with a running event loop, after the
        close, and in a process forked since.
        """
        if not inspect.iscoroutine(coroutine):
            what = type(coroutine).__name__
            raise SyncMisused(f"it was given a {what}; give it a coroutine: wait(send.enqueue(3))")
        call: Call[T] = Call(coroutine)
        try:
            self._begin(call)
            return call.done.result()
        except BaseException:  # its own error, or Ctrl-C, which may come at any moment
            call.abandon(self._patience)
            raise

    def each(self, items: AsyncIterable[T]) -> Iterator[T]:
        """What an async iterator gives, one after the other: `for e in wait.each(stream):`."""
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
        """Wait for what is under way, for a while, and let go of the app; twice is fine."""
        if self._pid != os.getpid():
            return  # the thread is the parent's
        _require_no_loop()
        with self._lock:
            is_first, self._closed = not self._closed, True
        if is_first and self._loop is not None:
            wait(self._under_way.copy(), self._patience)
            try:
                self._loop.perform(self._closing, within=self._patience)
            finally:
                self._loop.end(self._patience)

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
            self._under_way.add(call.done)
            call.done.add_done_callback(self._under_way.discard)
            call.begin(loop)

    def _usable(self) -> LoopThread:
        """The loop, started if it was not; SyncMisused says why it cannot be used."""
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
        """The loop is over: nobody will end what was sent to it too late."""
        for done in self._under_way.copy():
            with suppress(InvalidStateError):
                done.set_exception(SyncMisused("the loop of this bridge ended; make another"))

    def _started(self) -> LoopThread:
        loop = LoopThread("outlast-sync", self._give_up)
        try:
            loop.perform(self._opening)
        except BaseException:
            loop.end(self._patience)
            raise
        return loop


class Call(Generic[T]):
    """A coroutine on its way; `done` has its outcome only when it is really over."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.done: Future[T] = Future()
        self._coroutine = coroutine
        self._loop: LoopThread | None = None
        self._task: asyncio.Task[T] | None = None

    def begin(self, loop: LoopThread) -> None:
        """Send it off."""
        self._loop = loop
        try:
            loop.call_soon(self._start)
        except RuntimeError as error:
            raise SyncMisused("the loop of this bridge ended; make another") from error

    def abandon(self, patience: float) -> None:
        """Cancel it, if it is not over, and see it over, for a while."""
        if self.done.done():
            return
        if self._loop is None or self._loop.has_ended:
            self._drop()
            return
        with suppress(RuntimeError):  # the loop has just ended, and `done` with it
            self._loop.call_soon(self._cancel)
        wait([self.done], patience)

    def _drop(self) -> None:
        self._coroutine.close()  # or Python would warn that nobody awaited it
        self.done.cancel()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self._finish)

    def _cancel(self) -> None:
        if self._task is None:
            self._drop()  # whoever sent it off was interrupted before it could go
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

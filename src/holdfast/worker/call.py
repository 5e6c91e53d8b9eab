"""Calling a handler so that whatever it does stays its own: its errors, its context, its task."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.worker.execute import Active


async def call(active: Active, params: dict[str, Any], threads: Executor) -> object:
    """What the handler returns; raises what it raises."""
    kind = active.kind
    handler = partial(kind.function, active.run) if kind.takes_run else kind.function
    if kind.executor == "async":
        active.task = asyncio.current_task()
        return await InContext(handler(**params))
    job = partial(contextvars.copy_context().run, _outcome, handler, params)
    value, error = await asyncio.get_running_loop().run_in_executor(threads, job)
    if error is not None:
        raise error
    return value


async def shake_off(task: asyncio.Task[Any]) -> None:
    """Take back cancellations that were meant for a handler, or that it gave itself."""
    while task.cancelling():
        task.uncancel()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # one that was requested and not yet delivered comes here


class InContext:
    """Runs a coroutine in a copy of the context, within the task that awaits it.

    The same as a task of its own, at a fraction of the price: what one job leaves in a context
    variable, the next in this slot does not see.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        run = contextvars.copy_context().run
        step: Callable[[Any], Any] = self._coroutine.send
        value: Any = None
        while True:
            try:
                waiting = run(step, value)
            except StopIteration as done:
                return done.value
            try:
                value = yield waiting
                step = self._coroutine.send
            except BaseException as error:  # noqa: BLE001 - it is for the coroutine to deal with
                step, value = self._coroutine.throw, error


def _outcome(handler: Callable[..., Any], params: dict[str, Any]) -> tuple[Any, Any]:
    """Errors as values: a StopIteration could not travel through a future, and would hang it."""
    try:
        return handler(**params), None
    except BaseException as error:  # noqa: BLE001 - SystemExit of a handler is its failure
        return None, error

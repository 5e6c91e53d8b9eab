"""Async handlers: each runs in its slot's own task, and keeps its context to itself."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Final

from outlast.core.ids import JobId
from outlast.jobs.executor_choice import STOPS
from outlast.worker.run_outcome import ActiveRun

OnStep = Callable[[JobId | None], None]
"""Told whose code the event loop is about to run; None when it is done."""


class AsyncExecutor:
    """Cancels a handler at its next await."""

    stops: Final = STOPS["async"]

    def __init__(self, stepping: OnStep | None) -> None:
        """`stepping` is told whose code the event loop runs, from its second step on."""
        self._stepping = stepping

    def call(
        self, active: ActiveRun, params: dict[str, Any]
    ) -> "ImmediateResult | ImmediateError | ContextAwaitable":
        """Runs it up to its first await here and now: most that are quick need no more."""
        task = active.task = active.slot_task
        assert task is not None
        active.stop = task.cancel
        run = contextvars.copy_context().run
        try:
            coroutine = active.handler(**params)
            waiting = run(coroutine.send, None)
        except StopIteration as done:
            return ImmediateResult(done.value)
        except BaseException as error:  # noqa: BLE001 - it is for whoever awaits it
            return ImmediateError(error)
        if self._stepping is not None:
            self._stepping(None)
        return ContextAwaitable(coroutine, active.claim.job_id, run, self._stepping, waiting)

    async def close(self) -> None:
        """Nothing to let go of: the tasks are the slots'."""

    def close_now(self) -> None:
        """The same."""


class ImmediateResult:
    """A handler that never waited."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, Any, object]:
        yield from ()
        return self.value


class ImmediateError:
    """A handler that failed before it waited."""

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __await__(self) -> Generator[Any, Any, object]:
        yield from ()
        raise self._error


async def clear_cancellation(task: asyncio.Task[Any]) -> None:
    """Take back cancellations that were meant for a handler, or that it gave itself."""
    while task.cancelling():
        task.uncancel()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # one that was requested and not yet delivered comes here


class ContextAwaitable:
    """Goes on with a coroutine in its own context, within the task that awaits it.

    The same as a task of its own, at a fraction of the price: what one job leaves in a context
    variable, the next in this slot does not see.
    """

    __slots__ = ("_coroutine", "_job_id", "_run", "_stepping", "_waiting")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        job_id: JobId,
        run: Callable[..., Any],
        stepping: OnStep | None,
        waiting: Any,
    ) -> None:
        """`waiting` is what its first step yielded."""
        self._coroutine = coroutine
        self._job_id = job_id
        self._run = run
        self._stepping = stepping
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, Any]:
        run, stepping = self._run, self._stepping
        step: Callable[[Any], Any]
        value: Any
        while True:
            try:
                value = yield self._waiting
                step = self._coroutine.send
            except BaseException as error:  # noqa: BLE001 - it is for the coroutine to deal with
                step, value = self._coroutine.throw, error
            try:
                if stepping is not None:
                    stepping(self._job_id)
                self._waiting = run(step, value)
            except StopIteration as done:
                return done.value
            finally:
                if stepping is not None:
                    stepping(None)

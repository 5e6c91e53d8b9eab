"""The async executor: runs handlers in the slot's task, each in its own context."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Final

from outlast.core.ids import JobId
from outlast.jobs.executor_choice import STOPS
from outlast.worker.run_outcome import ActiveRun

OnStep = Callable[[JobId | None], None]
"""Called with the job whose code the event loop is about to run; None when it is done."""


class AsyncExecutor:
    """Cancels a handler at its next await."""

    stops: Final = STOPS["async"]

    def __init__(self, on_step: OnStep | None) -> None:
        """Create the executor; `on_step` is called for every step but the first."""
        self._on_step = on_step

    def call(
        self, active: ActiveRun, params: dict[str, Any]
    ) -> "ImmediateResult | ImmediateError | ContextAwaitable":
        """Run the handler up to its first suspension; most quick handlers end before that."""
        task = active.task = active.slot_task
        assert task is not None
        active.stop = task.cancel
        run = contextvars.copy_context().run
        try:
            coroutine = active.handler(**params)
            waiting = run(coroutine.send, None)
        except StopIteration as done:
            return ImmediateResult(done.value)
        except BaseException as error:  # noqa: BLE001 - raised again by the awaitable
            return ImmediateError(error)
        if self._on_step is not None:
            self._on_step(None)
        return ContextAwaitable(coroutine, active.claim.job_id, run, self._on_step, waiting)

    async def close(self) -> None:
        """Do nothing: the tasks belong to the execution slots."""

    def close_now(self) -> None:
        """Do nothing: the tasks belong to the execution slots."""


class ImmediateResult:
    """The result of a handler that never suspended."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, Any, object]:
        yield from ()
        return self.value


class ImmediateError:
    """The error of a handler that raised before it suspended."""

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __await__(self) -> Generator[Any, Any, object]:
        yield from ()
        raise self._error


async def clear_cancellation(task: asyncio.Task[Any]) -> None:
    """Undo cancellations of the slot's task that were meant for its handler."""
    while task.cancelling():
        task.uncancel()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # a requested cancellation that is not yet delivered arrives here


class ContextAwaitable:
    """Continues a coroutine in its own context, within the task that awaits it.

    Isolates context variables between the jobs of a slot as a separate task would, but cheaper.
    """

    __slots__ = ("_coroutine", "_job_id", "_on_step", "_run", "_waiting")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        job_id: JobId,
        run: Callable[..., Any],
        on_step: OnStep | None,
        waiting: Any,
    ) -> None:
        """Create the awaitable; `waiting` is what the first step yielded."""
        self._coroutine = coroutine
        self._job_id = job_id
        self._run = run
        self._on_step = on_step
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, Any]:
        run, on_step = self._run, self._on_step
        step: Callable[[Any], Any]
        value: Any
        while True:
            try:
                value = yield self._waiting
                step = self._coroutine.send
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine
                step, value = self._coroutine.throw, error
            try:
                if on_step is not None:
                    on_step(self._job_id)
                self._waiting = run(step, value)
            except StopIteration as done:
                return done.value
            finally:
                if on_step is not None:
                    on_step(None)

"""Plain functions: each runs in a thread, which nobody can stop but itself."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from outlast.jobs.executor_choice import STOPS
from outlast.worker.run_outcome import ActiveRun


class ThreadExecutor:
    """Only tells a handler to stop: it looks at `run.cancelled`, or reaches a checkpoint."""

    stops: Final = STOPS["thread"]

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="outlast-handler")

    async def call(self, active: ActiveRun, params: dict[str, Any]) -> object:
        return await self.run(active.handler, params)

    async def run(self, function: Callable[..., Any], params: dict[str, Any]) -> Any:
        """Call that function in a thread; its answer, or its error."""
        job = partial(contextvars.copy_context().run, _outcome, function, params)
        value, error = await asyncio.get_running_loop().run_in_executor(self._threads, job)
        if error is not None:
            raise error
        return value

    async def close(self) -> None:
        """A thread that does not end cannot be ended; its slot will let go of it."""

    def close_now(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _outcome(handler: Callable[..., Any], params: dict[str, Any]) -> tuple[Any, Any]:
    """Errors as values: a StopIteration could not travel through a future, and would hang it."""
    try:
        return handler(**params), None
    except BaseException as error:  # noqa: BLE001 - SystemExit of a handler is its failure
        return None, error

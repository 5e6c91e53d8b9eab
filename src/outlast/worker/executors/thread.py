"""The thread executor: runs plain functions, which cannot be stopped from outside."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from outlast.jobs.executor_choice import STOPS
from outlast.jobs.middleware import async_only, await_inside
from outlast.worker.run_outcome import ActiveRun


class ThreadExecutor:
    """Requests a stop only: the handler checks `run.cancelled` or reaches a checkpoint."""

    stops: Final = STOPS["thread"]

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="outlast-handler")

    async def call(self, active: ActiveRun, params: dict[str, Any]) -> object:
        """Call the handler in a thread, inside its middleware."""
        call = partial(self._run, active.handler, params)
        outer = async_only(active.kind.middleware) if active.kind.middleware else ()
        return await await_inside(outer, active.run, call) if outer else await call()

    async def _run(self, function: Callable[..., Any], params: dict[str, Any]) -> Any:
        """Call a function in a thread; return its value or raise its error."""
        job = partial(contextvars.copy_context().run, _outcome, function, params)
        value, error = await asyncio.get_running_loop().run_in_executor(self._threads, job)
        if error is not None:
            raise error
        return value

    async def close(self) -> None:
        """Do nothing: a thread cannot be killed, and its slot abandons the run."""

    def close_now(self) -> None:
        """Shut the thread pool down without waiting for running threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _outcome(handler: Callable[..., Any], params: dict[str, Any]) -> tuple[Any, Any]:
    """Return the error as a value, since a future cannot carry StopIteration."""
    try:
        return handler(**params), None
    except BaseException as error:  # noqa: BLE001 - SystemExit of a handler is its failure
        return None, error

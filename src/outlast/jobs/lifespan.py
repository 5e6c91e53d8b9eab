"""The lifespan of an app: what its handlers share in one process."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, Final

from outlast.core.duration import format_exact
from outlast.core.limits import repr_short
from outlast.errors import ConfigurationError, InvalidType
from outlast.run_context import NO_CONTEXT

log = logging.getLogger("outlast.worker")

TASK_NAME: Final = "outlast-lifespan"

CANCEL_TIMEOUT_S: Final = 1.0
"""Seconds for which a cancelled lifespan may run on."""


def check_lifespan(function: object) -> None:
    """Raise InvalidType unless `function` may return an async context manager."""
    if callable(function) and not (isasyncgenfunction(function) or iscoroutinefunction(function)):
        return
    raise InvalidType(
        f"lifespan is {repr_short(function)}; give a function that takes the app and is decorated "
        "with contextlib.asynccontextmanager"
    )


class Lifespan:
    """Enters and leaves the context manager of an app, both in one task of the running loop."""

    def __init__(
        self,
        enter: Callable[[], AbstractAsyncContextManager[Any]] | None,
        *,
        name: str = "",
        timeout: timedelta = timedelta(0),
    ) -> None:
        """Create a lifespan; `timeout` limits its start, and its end. None does nothing."""
        self._enter = enter
        self._name = name
        self._timeout = timeout
        self._task: asyncio.Task[BaseException | None] | None = None

    async def start(self) -> Any:
        """Return the value for `run.context`; ConfigurationError if there is none in time."""
        if self._enter is None:
            return NO_CONTEXT
        self._ending = asyncio.Event()
        self._value: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = task = asyncio.create_task(self._hold(self._enter), name=TASK_NAME)
        ends: list[asyncio.Future[Any]] = [task, self._value]
        within = self._timeout.total_seconds()
        try:
            await asyncio.wait(ends, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not self._value.done():
                await self._abandon()
        if self._value.done():
            return self._value.result()
        error = task.result() if task.done() and not task.cancelled() else None
        raise ConfigurationError(
            f"lifespan {self._name} {self._failure(error)}; correct it and start the worker again"
        ) from error

    async def stop(self) -> None:
        """End it in the time allowed. Its errors are logged: all runs have ended."""
        task = self._task
        if task is None:
            return
        self._ending.set()
        if self._value.done():
            await asyncio.wait([task], timeout=self._timeout.total_seconds())
        if not task.done():
            log.error("lifespan %s did not end in time and is cancelled", self._name)
            await self._abandon()
        elif not task.cancelled() and (error := task.result()) is not None:
            log.error("lifespan %s failed at its end", self._name, exc_info=error)
        self._task = None

    async def _hold(
        self, enter: Callable[[], AbstractAsyncContextManager[Any]]
    ) -> BaseException | None:
        """Return the error of the context manager, since SystemExit would end the loop."""
        try:
            async with enter() as value:
                self._value.set_result(value)
                await self._ending.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - reported by `start` and `stop`
            return error
        return None

    async def _abandon(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_TIMEOUT_S)

    def _failure(self, error: BaseException | None) -> str:
        if error is None:
            limit = format_exact(self._timeout)
            return f"did not start within lifespan_timeout ({limit})"
        return f"could not start: {type(error).__name__}: {error}"


NO_LIFESPAN: Final = Lifespan(None)

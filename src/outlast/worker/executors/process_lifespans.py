"""The lifespans of a handler process, and the loop that they share with its handlers."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from outlast.jobs.lifespan import TASK_NAME, Lifespan
from outlast.jobs.registry import Registry
from outlast.run_context import NO_CONTEXT

CANCEL_TIMEOUT_S = 1.0
"""Seconds for which cancelled tasks may run on."""


class AppOfProcess(Protocol):
    """What a handler process needs of the app."""

    registry: Registry

    def _new_lifespan(self) -> Lifespan | None:
        """Return its lifespan for one process; None if it has none."""
        ...


class ProcessLifespans:
    """Starts the lifespan of each app once, and ends all of them with the process."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._started: dict[int, tuple[Lifespan, Any]] = {}

    @contextmanager
    def entered(self, app: AppOfProcess) -> Iterator[tuple[asyncio.Runner, Any]]:
        """Return the loop for one handler of that app, and the value of its `run.context`."""
        lifespan = app._new_lifespan()  # noqa: SLF001 - no part of its public interface
        if lifespan is None:
            with asyncio.Runner() as runner:
                yield runner, NO_CONTEXT
            return
        if id(app) not in self._started:
            self._started[id(app)] = lifespan, self._runner.run(lifespan.start())
        yield self._runner, self._started[id(app)][1]

    def close(self) -> None:
        """Cancel what still runs on the loop, then end the lifespans, the last one first."""
        if self._started:
            self._runner.run(self._close())

    async def _close(self) -> None:
        current = asyncio.current_task()
        others = [
            task
            for task in asyncio.all_tasks()
            if task is not current and task.get_name() != TASK_NAME
        ]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=CANCEL_TIMEOUT_S)
        for lifespan, _ in reversed(self._started.values()):
            await lifespan.stop()

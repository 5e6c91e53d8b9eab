"""Writing how far runs are: what is said while one write is under way goes out with the next."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from outlast.core.run import Lease
from outlast.errors import OperatorError
from outlast.run_context import WorkerRun

log = logging.getLogger("outlast.worker")

BETWEEN: Final = 0.1
"""The pause between two writes, in seconds: a handler in a tight loop costs ten a second."""

AFTER_A_FAILURE: Final = 1.0

Report = Callable[[Sequence[tuple[Lease, str]]], Awaitable[list[bool]]]


class ProgressReporter:
    """Takes the newest progress of each run that has some; a run whose lease is gone is told."""

    def __init__(self, report: Report, *, between: float = BETWEEN) -> None:
        self._report = report
        self._between = between
        self._loop = asyncio.get_running_loop()
        self._runs: list[WorkerRun] = []
        self._task: asyncio.Task[None] | None = None

    def tell(self, run: WorkerRun) -> None:
        """There is progress to take. Any thread may call it."""
        with suppress(RuntimeError):  # the loop is closed: nobody works here any more
            self._loop.call_soon_threadsafe(self._add, run)

    async def last(self, run: WorkerRun) -> None:
        """Write what this run said last; its handler is done."""
        if run.has_news:
            await self._write([run])

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _add(self, run: WorkerRun) -> None:
        self._runs.append(run)
        if self._task is None:
            self._task = asyncio.create_task(self._write_all(), name="outlast-report")

    async def _write_all(self) -> None:
        try:
            while self._runs:
                runs, self._runs = self._runs, []
                pause = self._between if await self._write(runs) else AFTER_A_FAILURE
                await asyncio.sleep(pause)
        finally:
            self._task = None

    async def _write(self, runs: list[WorkerRun]) -> bool:
        runs = [run for run in runs if run.has_news]
        try:
            answers = await self._report([(run.lease, run.take_progress()) for run in runs])
        except OperatorError as error:
            log.warning("the progress of %d runs was not written: %s", len(runs), error)
            for run in runs:
                run.put_back_progress()
            self._runs += runs
            return False
        except Exception:
            log.exception("the progress of %d runs could not be written", len(runs))
            return False
        for run, is_held in zip(runs, answers, strict=True):
            if not is_held:
                run.lose_lease()
        return True

"""Writing how far runs are: what is said while one write is under way goes out with the next."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from outlast.core.run import Lease
from outlast.errors import OperatorError
from outlast.run_context import Run

log = logging.getLogger("outlast.worker")

WRITE_INTERVAL_S: Final = 0.1
"""The pause between two writes, in seconds: a handler in a tight loop costs ten a second."""

ERROR_PAUSE_S: Final = 1.0

RecordProgress = Callable[[Sequence[tuple[Lease, str]]], Awaitable[list[bool]]]


class ProgressReporter:
    """Takes the newest progress of each run that has some; a run whose lease is gone is told."""

    def __init__(self, report: RecordProgress, *, between: float = WRITE_INTERVAL_S) -> None:
        self._report = report
        self._between = between
        self._loop = asyncio.get_running_loop()
        self._runs: list[Run] = []
        self._task: asyncio.Task[None] | None = None

    def notify(self, run: Run) -> None:
        """There is progress to take. Any thread may call it."""
        with suppress(RuntimeError):  # the loop is closed: nobody works here any more
            self._loop.call_soon_threadsafe(self._add, run)

    async def write_last(self, run: Run) -> None:
        """Write what this run said last; its handler is done."""
        if run.has_news:
            await self._write([run])

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _add(self, run: Run) -> None:
        self._runs.append(run)
        if self._task is None:
            self._task = asyncio.create_task(self._write_all(), name="outlast-report")

    async def _write_all(self) -> None:
        try:
            while self._runs:
                runs, self._runs = self._runs, []
                pause = self._between if await self._write(runs) else ERROR_PAUSE_S
                await asyncio.sleep(pause)
        finally:
            self._task = None

    async def _write(self, runs: list[Run]) -> bool:
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

"""The progress reporter: writes the progress of runs, coalesced into few writes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from outlast.core.run import Lease
from outlast.errors import OperatorError
from outlast.jobs.envelopes import Envelopes
from outlast.run_context import WorkerRun

log = logging.getLogger("outlast.worker")

WRITE_INTERVAL_S: Final = 0.1
"""Seconds between two writes: a handler in a tight loop causes at most ten a second."""

ERROR_PAUSE_S: Final = 1.0
"""Seconds to wait after a failed write."""

RecordProgress = Callable[[Sequence[tuple[Lease, str]]], Awaitable[list[bool]]]
"""Writes the progress of leases; answers False for each lease that is lost."""


class ProgressReporter:
    """Writes the newest progress of each run. A run whose lease is lost is informed."""

    def __init__(
        self,
        record_progress: RecordProgress,
        *,
        interval: float = WRITE_INTERVAL_S,
        envelopes: Envelopes | None = None,
    ) -> None:
        self._wrap = (envelopes or Envelopes()).wrap_progress
        self._record_progress = record_progress
        self._interval = interval
        self._loop = asyncio.get_running_loop()
        self._runs: list[WorkerRun] = []
        self._task: asyncio.Task[None] | None = None

    def notify(self, run: WorkerRun) -> None:
        """Schedule a write for a run that has new progress. Thread-safe."""
        with suppress(RuntimeError):  # the loop is closed, so the worker has stopped
            self._loop.call_soon_threadsafe(self._add, run)

    async def write_last(self, run: WorkerRun) -> None:
        """Write the last progress of a run whose handler has ended."""
        if run.has_news:
            await self._write([run])

    def close(self) -> None:
        """Cancel the write under way."""
        if self._task is not None:
            self._task.cancel()

    def _add(self, run: WorkerRun) -> None:
        self._runs.append(run)
        if self._task is None:
            self._task = asyncio.create_task(self._write_all(), name="outlast-progress")

    async def _write_all(self) -> None:
        try:
            while self._runs:
                runs, self._runs = self._runs, []
                pause = self._interval if await self._write(runs) else ERROR_PAUSE_S
                await asyncio.sleep(pause)
        finally:
            self._task = None

    async def _write(self, runs: list[WorkerRun]) -> bool:
        runs = [run for run in runs if run.has_news]
        try:
            updates = [(run.lease, self._wrap(run.take_progress(), run.job_id)) for run in runs]
            answers = await self._record_progress(updates)
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

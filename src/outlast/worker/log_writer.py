"""The log writer: writes what running handlers log, in few writes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from outlast.config import Settings
from outlast.core.log_capture import capture_level
from outlast.core.run import Claim, Lease
from outlast.core.run_log import MAX_LOG, MAX_PAID_LOG, LogWrite
from outlast.errors import OperatorError
from outlast.jobs.jobtype import JobType
from outlast.worker import log_handler
from outlast.worker.run_log import RunLog

log = logging.getLogger("outlast.worker")

WRITE_INTERVAL_S: Final = 1.0
"""Seconds between two writes while handlers run; the last lines are written with the end."""

WriteLogs = Callable[[Sequence[tuple[Lease, LogWrite]]], Awaitable[list[bool]]]
"""Writes to logs; answers False for each lease that is lost."""


class LogWriter:
    """Creates the logs of runs and writes them about once a second while they run."""

    _attached = 0

    def __init__(
        self,
        write_logs: WriteLogs,
        settings: Settings,
        *,
        is_paid: bool,
        interval: float = WRITE_INTERVAL_S,
    ) -> None:
        """Create a writer; `is_paid`: each record of the store has a price."""
        self._write_logs = write_logs
        self._of_app = settings.log_capture
        self._is_paid = is_paid
        self._limit = MAX_PAID_LOG if is_paid else MAX_LOG
        self._interval = interval
        self._levels: dict[str, int | None] = {}
        self._running: set[RunLog] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_attached = False

    def new_log(self, claim: Claim, kind: "JobType[..., object]") -> RunLog | None:
        """Return the log of a run that starts; None if its type keeps none."""
        level = self._level(kind)
        if level is None:
            return None
        self._attach()
        return RunLog(claim.lease, level=level, limit=self._limit)

    def watch(self, run_log: RunLog) -> None:
        """Write this log from time to time, until `forget`."""
        self._running.add(run_log)
        if self._task is None:
            self._task = asyncio.create_task(self._write_all(), name="outlast-logs")

    def forget(self, run_log: RunLog) -> None:
        """Write this log no more: its run has ended."""
        self._running.discard(run_log)

    def close(self) -> None:
        """Cancel the write under way; the last worker of the process removes the handler."""
        if self._task is not None:
            self._task.cancel()
        if self._is_attached:
            self._is_attached = False
            LogWriter._attached -= 1
            if not LogWriter._attached:
                log_handler.detach()

    async def write(self) -> None:
        """Write what is new in the logs of running handlers."""
        taken = [(each, write) for each in self._running if (write := each.take()) is not None]
        if not taken:
            return
        try:
            answers = await self._write_logs([(each.lease, write) for each, write in taken])
        except OperatorError as error:
            log.warning("the logs of %d runs were not written: %s", len(taken), error)
            return
        except Exception:
            log.exception("the logs of %d runs could not be written", len(taken))
            answers = [False] * len(taken)
        for (each, write), is_held in zip(taken, answers, strict=True):
            if is_held:
                each.stored(write)
            else:
                each.close()

    async def _write_all(self) -> None:
        try:
            while self._running:
                await asyncio.sleep(self._interval)
                await self.write()
        finally:
            self._task = None

    def _level(self, kind: "JobType[..., object]") -> int | None:
        if kind.name not in self._levels:
            of_type = kind.policy.log_capture
            level = capture_level(of_type, self._of_app, unasked=not self._is_paid)
            self._levels[kind.name] = level
        return self._levels[kind.name]

    def _attach(self) -> None:
        """Attach the handler to the root logger; again, if a configuration has removed it."""
        if not self._is_attached:
            self._is_attached = True
            LogWriter._attached += 1
        log_handler.attach()

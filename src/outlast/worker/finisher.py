"""The finisher: closes runs by group commit. Changes that arrive during a write form the next."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from outlast.core.decide import SUCCESS, Change
from outlast.core.group import GOOD
from outlast.core.ids import JobId
from outlast.core.state import FINAL
from outlast.errors import OperatorError, StoreClosed
from outlast.store.contract.jobs import Jobs
from outlast.worker import log_events

log = logging.getLogger("outlast.worker")

FAILED_ENDS = FINAL - GOOD
"""Final states that close a group."""

FIRST_RETRY_PAUSE_S = 0.2
MAX_RETRY_PAUSE_S = 1.0
"""Seconds between two attempts to write: doubled after each failure, up to the maximum."""

MAX_BATCH = 1000
"""Changes in one write at most: enough for throughput, few enough for short transactions."""

ERROR_LOG_ATTEMPTS = 5
"""Failed writes in a row after which the log level rises to error."""

LOG_EVERY_ATTEMPTS = 60
"""After that, every n-th attempt is logged: about once a minute."""


def pause_after(failed: int) -> float:
    """Return the seconds to wait for the next attempt after that many failed ones in a row."""
    return min(MAX_RETRY_PAUSE_S, FIRST_RETRY_PAUSE_S * 2.0 ** min(failed - 1, 10))


class Finisher:
    """Writes changes until the store answers. A result counts only once it is durable."""

    def __init__(
        self,
        store: Jobs,
        on_written: Callable[[Sequence[Change], Sequence[bool]], None],
        on_failure: Callable[[], Awaitable[object]],
    ) -> None:
        """Create a finisher.

        `on_written` receives each batch with the store's answers. `on_failure` is awaited after a
        failure is durable and before its slot is free.
        """
        self._store = store
        self._on_written = on_written
        self._on_failure = on_failure
        self._waiting: list[Change] = []
        self._writing: list[Change] = []
        self._task: asyncio.Task[None] | None = None
        self._failed = 0
        self.refused = 0

    def finish(self, change: Change) -> None:
        """Queue a change for the next write."""
        self._waiting.append(change)
        if self._task is None:
            self._task = asyncio.create_task(self._write_all(), name="outlast-finish")

    @property
    def is_busy(self) -> bool:
        """Whether a change waits or is being written."""
        return self._task is not None

    @property
    def unwritten(self) -> list[JobId]:
        """Jobs whose end is not durable yet."""
        return [change.job_id for change in (*self._writing, *self._waiting)]

    async def flush(self) -> None:
        """Wait until the store has answered every queued change."""
        while self._task is not None:
            await asyncio.wait([self._task])
            await asyncio.sleep(0)

    async def abandon(self) -> None:
        """Stop writing. The leases of unwritten runs expire and another worker reclaims them."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                batch = self._writing = self._waiting[:MAX_BATCH]
                del self._waiting[:MAX_BATCH]
                answers = await self._write(batch)
                unanswered = [change for change, answer in _pairs(batch, answers) if answer is None]
                self._waiting[:0] = unanswered
                self._writing = [c for c, answer in _pairs(batch, answers) if answer is not None]
                await self._pass_on([answer for answer in answers if answer is not None])
                self._failed = self._failed + 1 if unanswered else 0
                if unanswered:
                    await asyncio.sleep(pause_after(self._failed))
        finally:
            self._task = None

    async def _pass_on(self, answers: Sequence[bool]) -> None:
        """Pass on the changes that were answered, so that their slots are free."""
        answered = self._writing
        if any(change.move is not SUCCESS and change.move.to in FAILED_ENDS for change in answered):
            with suppress(OperatorError):  # the next maintenance closes the groups
                await self._on_failure()
        if answered:
            self.on_written(answered, answers)
        self._writing = []

    async def _write(self, changes: list[Change]) -> Sequence[bool | None]:
        """Return the answer for each change; None if the store failed to give one."""
        try:
            return await self._store.apply(changes)
        except StoreClosed:
            raise
        except OperatorError as error:
            answers = error.answers or [None] * len(changes)
            failed, left = self._failed + 1, answers.count(None)
            write_log = log.error if failed >= ERROR_LOG_ATTEMPTS else log.warning
            if failed <= ERROR_LOG_ATTEMPTS or failed % LOG_EVERY_ATTEMPTS == 0:
                write_log("%d ends not written after %d tries: %s", left, failed, error)
            return answers
        except Exception:
            # An internal error. The leases expire and the jobs run again: late, but not lost.
            log.exception("%d ends could not be written", len(changes))
            return [False] * len(changes)

    def on_written(self, changes: Sequence[Change], answers: Sequence[bool]) -> None:
        """Count and log refused changes, then pass the batch on."""
        if False in answers:
            for change, applied in zip(changes, answers, strict=True):
                if not applied:
                    # The lease was lost: another worker has the job, so this result is void.
                    self.refused += 1
                    log_events.late_write_refused(change)
        self._on_written(changes, answers)


def _pairs(
    changes: Sequence[Change], answers: Sequence[bool | None]
) -> list[tuple[Change, bool | None]]:
    return list(zip(changes, answers, strict=True))

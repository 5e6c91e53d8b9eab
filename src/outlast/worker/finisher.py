"""Closing runs by group commit: what ends while one write is under way goes out with the next."""

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

BAD = FINAL - GOOD
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 1.0
"""Seconds between two tries to write: twice as long after each failure, up to the longest."""

AT_ONCE = 1000
"""So many ends go out in one write: enough to be quick, few enough to be soon over."""

ALARM = 5
"""After so many failed writes in a row somebody should look."""

RARELY = 60
"""Then every so many tries are told: about once a minute."""


def pause_after(failed: int) -> float:
    """Return the seconds to wait for the next try after that many failed ones in a row."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failed - 1, 10))


class Finisher:
    """Writes ends until the store has them. A result counts only once it is durable."""

    def __init__(
        self,
        store: Jobs,
        settled: Callable[[Sequence[Change], Sequence[bool]], None],
        failed: Callable[[], Awaitable[object]],
    ) -> None:
        self._store = store
        self._settled = settled
        self._failed = failed  # awaited after a failure is written, while its slot is still taken
        self._waiting: list[Change] = []
        self._writing: list[Change] = []
        self._task: asyncio.Task[None] | None = None
        self.refused = 0

    def finish(self, change: Change) -> None:
        """Take a change; it is written as soon as the write under way is over."""
        self._waiting.append(change)
        if self._task is None:
            self._task = asyncio.create_task(self._write_all(), name="outlast-finish")

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    @property
    def unwritten(self) -> list[JobId]:
        """Jobs whose end is not durable yet; if the store stays away, these need attention."""
        return [change.job_id for change in (*self._writing, *self._waiting)]

    async def flush(self) -> None:
        """Wait until every change taken so far has been answered."""
        while self._task is not None:
            await asyncio.wait([self._task])
            await asyncio.sleep(0)

    async def abandon(self) -> None:
        """Stop trying; what is unwritten is left to whoever reclaims it."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                batch = self._writing = self._waiting[:AT_ONCE]
                del self._waiting[:AT_ONCE]
                answers = await self._write(batch)
                if any(change.move is not SUCCESS and change.move.to in BAD for change in batch):
                    with suppress(OperatorError):  # whoever sweeps next will see to it
                        await self._failed()
                self.settle(batch, answers)
                self._writing = []
        finally:
            self._task = None

    async def _write(self, changes: list[Change]) -> list[bool]:
        failed = 0
        while True:
            try:
                return await self._store.apply(changes)
            except StoreClosed:
                raise
            except OperatorError as error:
                failed += 1
                tell = log.error if failed >= ALARM else log.warning
                if failed <= ALARM or failed % RARELY == 0:
                    tell("%d ends not written after %d tries: %s", len(changes), failed, error)
                await asyncio.sleep(pause_after(failed))
            except Exception:
                # A fault of ours. The leases lapse and the jobs run again: late, but not lost.
                log.exception("%d ends could not be written", len(changes))
                return [False] * len(changes)

    def settle(self, changes: Sequence[Change], answers: Sequence[bool]) -> None:
        """The store has taken these, or refused them."""
        if False in answers:
            for change, applied in zip(changes, answers, strict=True):
                if not applied:
                    # The lease was lost: somebody else has the job, this result must not count.
                    self.refused += 1
                    log_events.late_write_refused(change)
        self._settled(changes, answers)

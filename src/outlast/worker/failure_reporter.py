"""Delivers failed attempts to failure sinks, after they are durable, in a separate thread."""

import asyncio
import logging
import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from outlast.core.decide import Change
from outlast.core.failure_sink import FailedAttempt, FailureSink
from outlast.core.ids import JobId
from outlast.core.run import Claim
from outlast.worker.run_outcome import raised_of

log = logging.getLogger("outlast.worker")

MAX_PENDING_FAILURES: Final = 1_000
"""Failures that wait for a slow sink at most; further ones are dropped."""

CLOSE_TIMEOUT: Final = timedelta(seconds=3)
"""Time for which a stopping worker waits for its sinks."""


class FailureReporter:
    """The failure reports of one worker. An attempt whose end the store refuses is not reported."""

    def __init__(self, sinks: Sequence[FailureSink]) -> None:
        self.worker = "?"
        self._sinks = sinks
        self._unwritten: dict[tuple[JobId, int], FailedAttempt] = {}
        self._pending: queue.Queue[FailedAttempt | None] = queue.Queue(MAX_PENDING_FAILURES)
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self._broken: set[int] = set()

    def record(self, claim: Claim, change: Change, error: BaseException | None) -> None:
        """Record a failed attempt, to be reported once its end is durable."""
        self._unwritten[claim.job_id, claim.token] = FailedAttempt(claim, change, raised_of(error))

    def on_written(self, changes: Sequence[Change], answers: Sequence[bool]) -> None:
        """Report the recorded attempts among these changes that the store applied."""
        if not self._unwritten:
            return
        for change, applied in zip(changes, answers, strict=True):
            attempt = self._unwritten.pop((change.job_id, change.token), None)
            if attempt is not None and applied:
                self._put(attempt)

    async def close(self) -> None:
        """Deliver pending failures, for CLOSE_TIMEOUT at most. A stuck sink is left behind."""
        thread, self._thread = self._thread, None
        self._unwritten.clear()
        if thread is None:
            return
        with suppress(queue.Empty):
            if self._pending.full():
                self._pending.get_nowait()  # drop one failure for the end marker
        self._pending.put_nowait(None)
        await asyncio.to_thread(thread.join, CLOSE_TIMEOUT.total_seconds())
        if thread.is_alive():
            log.warning("failure sink timed out dropped=%d", self._pending.qsize())
            self._pending = queue.Queue(MAX_PENDING_FAILURES)

    def _put(self, attempt: FailedAttempt) -> None:
        try:
            if self._thread is None:
                self._thread = self._start_thread()
            self._pending.put_nowait(attempt)
        except queue.Full:
            self._drop(f"{MAX_PENDING_FAILURES} wait for a slow sink")
        except RuntimeError as error:
            self._drop(str(error))  # the system has no thread left: the job is not affected
        else:
            self._dropped = 0

    def _start_thread(self) -> threading.Thread:
        thread = threading.Thread(
            target=self._deliver_all, args=(self._pending,), name="outlast-failures", daemon=True
        )
        thread.start()
        return thread

    def _drop(self, why: str) -> None:
        self._dropped += 1
        if self._dropped == 1:
            log.warning("failures dropped: %s", why)

    def _deliver_all(self, pending: "queue.Queue[FailedAttempt | None]") -> None:
        while (attempt := pending.get()) is not None:
            for number, sink in enumerate(self._sinks):
                self._deliver(number, sink, attempt)

    def _deliver(self, number: int, sink: FailureSink, attempt: FailedAttempt) -> None:
        name = getattr(sink.sink, "__qualname__", type(sink.sink).__qualname__)
        try:
            sink.sink(sink.to_failure(attempt, worker=self.worker))
        except BaseException as error:  # noqa: BLE001 - the thread must survive for the next failure
            # Logged once until the sink works again. Its message may quote the job's arguments.
            if number not in self._broken:
                self._broken.add(number)
                log.warning("sink %s failed: %s", name, type(error).__name__)
        else:
            self._broken.discard(number)

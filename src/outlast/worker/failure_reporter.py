"""Telling sinks what failed: after the store has it, in a thread that no job waits for."""

import asyncio
import logging
import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from outlast.core.decide import Change
from outlast.core.failure import ExceptionInfo, parse_traceback
from outlast.core.failure_sink import FailedAttempt, FailureSink, raised_by
from outlast.core.ids import JobId
from outlast.core.run import Claim
from outlast.worker.run_outcome import RemoteError

log = logging.getLogger("outlast.worker")

MOST_UNTOLD: Final = 1_000
"""So many wait for a slow sink; what comes then is not told."""

LAST_WORDS: Final = timedelta(seconds=3)
"""How long a worker that stops waits for its sinks."""


class FailureReporter:
    """Of one worker. An attempt whose end the store refuses is nobody's failure any more."""

    def __init__(self, watches: Sequence[FailureSink]) -> None:
        self.worker = "?"
        self._watches = watches
        self._noted: dict[tuple[JobId, int], FailedAttempt] = {}
        self._untold: queue.Queue[FailedAttempt | None] = queue.Queue(MOST_UNTOLD)
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self._broken: set[int] = set()

    def note(self, claim: Claim, change: Change, error: BaseException | None) -> None:
        """An attempt failed; it is told once its end is durable."""
        self._noted[claim.job_id, claim.token] = FailedAttempt(claim, change, _raised(error))

    def settled(self, changes: Sequence[Change], answers: Sequence[bool]) -> None:
        """The store has taken these ends, or refused them."""
        if not self._noted:
            return
        for change, applied in zip(changes, answers, strict=True):
            noted = self._noted.pop((change.job_id, change.token), None)
            if noted is not None and applied:
                self._put(noted)

    async def close(self) -> None:
        """Let the sinks hear what they have not, but not for long; a stuck one is left alone."""
        thread, self._thread = self._thread, None
        self._noted.clear()
        if thread is None:
            return
        with suppress(queue.Empty):
            if self._untold.full():
                self._untold.get_nowait()  # room for the word that ends it; one less is told
        self._untold.put_nowait(None)
        await asyncio.to_thread(thread.join, LAST_WORDS.total_seconds())
        if thread.is_alive():
            log.warning("%d failures are not told: a sink does not answer", self._untold.qsize())
            self._untold = queue.Queue(MOST_UNTOLD)

    def _put(self, noted: FailedAttempt) -> None:
        try:
            if self._thread is None:
                self._thread = self._started()
            self._untold.put_nowait(noted)
        except queue.Full:
            self._drop(f"{MOST_UNTOLD} wait for a slow sink")
        except RuntimeError as error:
            self._drop(str(error))  # the machine has no thread left, which is no fault of the job's
        else:
            self._dropped = 0

    def _started(self) -> threading.Thread:
        thread = threading.Thread(
            target=self._tell_all, args=(self._untold,), name="outlast-failures", daemon=True
        )
        thread.start()
        return thread

    def _drop(self, why: str) -> None:
        self._dropped += 1
        if self._dropped == 1:
            log.warning("failures are not told: %s", why)

    def _tell_all(self, untold: "queue.Queue[FailedAttempt | None]") -> None:
        while (noted := untold.get()) is not None:
            for number, watch in enumerate(self._watches):
                self._tell(number, watch, noted)

    def _tell(self, number: int, watch: FailureSink, noted: FailedAttempt) -> None:
        name = getattr(watch.sink, "__qualname__", type(watch.sink).__qualname__)
        try:
            watch.sink(watch.to_failure(noted, worker=self.worker))
        except BaseException as error:  # noqa: BLE001 - or the next failures would not be told
            if number not in self._broken:  # once, until it works again; its words may be ours
                self._broken.add(number)
                log.warning("sink %s failed: %s", name, type(error).__name__)
        else:
            self._broken.discard(number)


def _raised(error: BaseException | None) -> tuple[ExceptionInfo, ...]:
    try:
        # What was raised in a handler's own process comes from there as text.
        return parse_traceback(error.text) if isinstance(error, RemoteError) else raised_by(error)
    except Exception:  # noqa: BLE001 - an exception with code of its own; its text is on the run
        return ()

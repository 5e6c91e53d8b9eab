"""Detects that the wall clock was set ahead, before that deletes or ends anything."""

import logging
from datetime import timedelta
from typing import Final

from outlast.clock import Clock, to_micros
from outlast.core.duration import MICROSECOND, format_short

log = logging.getLogger("outlast.worker")

MAX_STEP: Final = timedelta(minutes=1)
"""Step of the wall clock, against the monotonic clock, that counts as normal."""

HOLD_BACK: Final = timedelta(hours=1)
"""How long a step ahead holds maintenance back, so that a wrong clock can be set right."""


class ClockWatch:
    """Compares the progress of the wall clock with that of the monotonic clock.

    A step ahead makes everything look old at once: all history, every start deadline, each group
    that is being filled. What maintenance does about that cannot be undone, so it waits. Only
    steps that happen while the process runs are seen.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._trusted = self._latest = self._offset()
        self._trusted_again_at = 0

    def is_trusted(self) -> bool:
        """Return whether the wall time may decide what is old."""
        offset = self._offset()
        step, self._latest = offset - self._latest, offset
        if (offset - self._trusted) * MICROSECOND <= MAX_STEP:
            self._trusted = offset  # no step, or it was taken back
            return True
        if abs(step) * MICROSECOND > MAX_STEP:
            self._trusted_again_at = self._clock.monotonic() + HOLD_BACK // MICROSECOND
            log.warning(
                "clock stepped ahead by=%s held_back=%s: pruning, missed start deadlines and "
                "incomplete groups wait; set the clock right if it is wrong",
                format_short((offset - self._trusted) * MICROSECOND),
                format_short(HOLD_BACK),
            )
        if self._clock.monotonic() < self._trusted_again_at:
            return False
        self._trusted = offset
        return True

    def _offset(self) -> int:
        return to_micros(self._clock.now()) - self._clock.monotonic()

"""Time limits of what runs: one timer per limit, not one per job."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from outlast.worker.run_outcome import ActiveRun


class Deadlines:
    """Calls `late` for each run that is watched for longer than its limit.

    Of runs with the same limit the one that started first is late first, so a dict in the order of
    their starts is all the queue there is, and to start or end a run costs no timer.
    """

    def __init__(self, late: Callable[[ActiveRun], None]) -> None:
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._lines: dict[timedelta, dict[ActiveRun, float]] = {}
        self._timers: dict[timedelta, asyncio.TimerHandle] = {}

    def watch(self, active: ActiveRun, limit: timedelta) -> None:
        when = active.started + limit.total_seconds()
        self._lines.setdefault(limit, {})[active] = when
        if limit not in self._timers:
            self._timers[limit] = self._loop.call_at(when, self._look, limit)

    def forget(self, active: ActiveRun, limit: timedelta) -> None:
        """It has ended; twice is fine."""
        self._lines[limit].pop(active, None)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _look(self, limit: timedelta) -> None:
        del self._timers[limit]
        line = self._lines[limit]
        now = self._loop.time()
        for active, when in [*line.items()]:
            if when > now:
                self._timers[limit] = self._loop.call_at(when, self._look, limit)
                return
            del line[active]
            self._late(active)

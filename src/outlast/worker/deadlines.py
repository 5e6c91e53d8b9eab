"""`max_runtime` timers: one timer per limit, not one per job."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from outlast.worker.run_outcome import ActiveRun

STOP_TIMEOUT_S: Final = 1.0
"""Seconds for which a handler may run on after its time limit; as long as under a supervisor."""


class Deadlines:
    """Calls `on_timeout` for each watched run that exceeds its limit.

    Calls `on_stuck` a second later if the run is still not forgotten.

    Runs with the same limit time out in the order of their starts. One dict in that order and one
    timer per limit are enough, so starting or ending a run creates no timer.
    """

    def __init__(
        self, on_timeout: Callable[[ActiveRun], None], on_stuck: Callable[[ActiveRun], None]
    ) -> None:
        self._on_timeout = on_timeout
        self._on_stuck = on_stuck
        self._stopping: dict[ActiveRun, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()
        self._watched: dict[timedelta, dict[ActiveRun, float]] = {}
        self._timers: dict[timedelta, asyncio.TimerHandle] = {}

    def watch(self, active: ActiveRun, limit: timedelta) -> None:
        """Call `on_timeout` if the run is still watched `limit` after its start."""
        deadline = active.started + limit.total_seconds()
        self._watched.setdefault(limit, {})[active] = deadline
        if limit not in self._timers:
            self._timers[limit] = self._loop.call_at(deadline, self._check, limit)

    def forget(self, active: ActiveRun, limit: timedelta) -> None:
        """Stop watching a run. Idempotent."""
        self._watched[limit].pop(active, None)
        if (timer := self._stopping.pop(active, None)) is not None:
            timer.cancel()

    def close(self) -> None:
        """Cancel every timer."""
        for timer in (*self._timers.values(), *self._stopping.values()):
            timer.cancel()

    def _check(self, limit: timedelta) -> None:
        del self._timers[limit]
        watched = self._watched[limit]
        now = self._loop.time()
        for active, deadline in [*watched.items()]:
            if deadline > now:
                self._timers[limit] = self._loop.call_at(deadline, self._check, limit)
                return
            del watched[active]
            self._on_timeout(active)
            timer = self._loop.call_later(STOP_TIMEOUT_S, self._give_up, active)
            self._stopping[active] = timer

    def _give_up(self, active: ActiveRun) -> None:
        del self._stopping[active]
        self._on_stuck(active)

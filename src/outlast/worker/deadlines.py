"""`max_runtime` timers: one timer per limit, not one per job."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from outlast.worker.run_outcome import ActiveRun


class Deadlines:
    """Calls `on_timeout` for each watched run that exceeds its limit.

    Runs with the same limit time out in the order of their starts. One dict in that order and one
    timer per limit are enough, so starting or ending a run creates no timer.
    """

    def __init__(self, on_timeout: Callable[[ActiveRun], None]) -> None:
        self._on_timeout = on_timeout
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

    def close(self) -> None:
        """Cancel every timer."""
        for timer in self._timers.values():
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

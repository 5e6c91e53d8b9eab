"""Which schedules are declared by the code of live workers, and which no longer are."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from outlast.core.schedule import UNDECLARED, Plan, Schedule
from outlast.core.worker import WorkerRecord

UNDECLARED_AFTER: Final = timedelta(minutes=10)
"""Time for which no live worker declares a schedule before it is disabled."""


def declared_twice(what: str, name: str, first: str, second: str) -> str:
    """Return the message about two declarations of one name, with both places."""
    return f"{what} {name} is declared twice, at {first} and at {second}; keep or rename one"


class Declarations:
    """The schedules that workers declare, by the registry of one moment.

    The registry keeps when each worker was registered, alive or not, so no other record is needed
    of how long a schedule has been undeclared.
    """

    def __init__(self, workers: Iterable[WorkerRecord], now: datetime) -> None:
        self.now = now
        self._workers = list(workers)
        self._registered_since: dict[str, datetime | None] = {}
        self._declared_until: dict[str, datetime] = {}
        for worker in self._workers:
            end = self._end(worker)
            for name in worker.schedules:
                self._declared_until[name] = max(end, self._declared_until.get(name, end))

    def is_declared(self, schedule: Schedule) -> bool:
        """Whether a live worker declares the schedule."""
        return self._declared_until.get(schedule.name) == self.now

    def undeclared_since(self, schedule: Schedule) -> datetime | None:
        """Return since when, without a break, workers of its app ran and none declared it.

        None if a live worker declares it, no worker of its app is alive, or it is not from code.
        """
        if schedule.plan.declared_by is None or self.is_declared(schedule):
            return None
        since = self._since(schedule.plan.declared_by)
        if since is None:
            return None
        return max(since, schedule.updated_at, self._declared_until.get(schedule.name, since))

    def judge(self, schedule: Schedule) -> Plan | None:
        """Return the plan that the schedule should have now; None if it is right as it is."""
        plan = schedule.plan
        if plan.disabled_reason == UNDECLARED and self.is_declared(schedule):
            return replace(plan, enabled=True, disabled_reason=None)
        since = self.undeclared_since(schedule) if plan.enabled else None
        if since is None or self.now - since < UNDECLARED_AFTER:
            return None
        return replace(plan, enabled=False, disabled_reason=UNDECLARED)

    def _since(self, app: str) -> datetime | None:
        if app not in self._registered_since:
            own = [worker for worker in self._workers if worker.app == app]
            self._registered_since[app] = self._covered_since(own)
        return self._registered_since[app]

    def _covered_since(self, workers: list[WorkerRecord]) -> datetime | None:
        """Return since when at least one of the workers was registered at every moment."""
        since = min((each.started_at for each in workers if each.is_alive), default=None)
        if since is None:
            return None
        for worker in sorted(workers, key=self._end, reverse=True):
            if self._end(worker) >= since:
                since = min(since, worker.started_at)
        return since

    def _end(self, worker: WorkerRecord) -> datetime:
        return self.now if worker.is_alive else worker.stopped_at or worker.seen_at

"""Contract: what start-up recovery and periodic maintenance read."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from outlast.core.event import EventRecord
from outlast.core.job import Job


class RecoveryReads(Protocol):
    """Reads for recovery. Only `running_under_other_boots` finds anything in an intact store.

    Lists are in the order of storage; `after` is the `seq` of the last job seen.
    """

    async def running_under_other_boots(
        self, *, besides: str, instance_id: str | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """Return running jobs whose lease holder has another boot id than `besides`.

        With `instance_id` only those of that instance. The holder of a job whose worker record is
        missing is None, and it belongs to no instance.
        """
        ...

    async def detached_jobs(self, *, after: int = 0, limit: int) -> list[Job]:
        """Return jobs that neither wait, nor have an open run, nor have ended.

        Each is returned as `running`, with the token of its last run (0 without one) and the
        failures and losses that its runs and its chain prove. Its position is lost: it has
        priority 0, and a change that puts it back puts it behind the others.
        """
        ...

    async def missing_successors(self, *, after: int = 0, limit: int) -> list[Job]:
        """Return jobs of `linked` delivery that ended `failed` and have no successor."""
        ...

    async def remove_orphans(self, *, limit: int) -> list[EventRecord]:
        """Delete up to `limit` closed runs whose job is gone; return the recorded events.

        Atomic per run: its event `orphan_run_removed`, of no job, holds a copy of it as JSON.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDue:
    """Kinds of maintenance that may have work; False means that there is none."""

    expired_leases: bool = True  # running jobs whose lease has expired
    missed_deadlines: bool = True  # queued jobs past their start deadline
    reservations: bool = True  # active reservations
    groups: bool = True  # closing groups, or groups that were never sealed in time
    dead_workers: bool = True  # running jobs of a worker without a live process

    def __bool__(self) -> bool:
        """Return whether any kind is due."""
        return (
            self.expired_leases
            or self.missed_deadlines
            or self.reservations
            or self.groups
            or self.dead_workers
        )


class MaintenanceCheck(Protocol):
    """The capability MAINTENANCE_CHECK."""

    async def maintenance_due(self, *, abandoned: timedelta) -> MaintenanceDue:
        """Return which kinds of maintenance are due; cheap, an idle worker calls it every second.

        `abandoned` is the age at which an unsealed group counts as never completed.
        """
        ...

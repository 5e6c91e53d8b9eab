"""Contract: what start-up recovery and periodic maintenance read."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from outlast.core.event import EventRecord
from outlast.core.job import Job


class RecoveryReads(Protocol):
    """What recovery looks for. Only `held` ever finds anything in a store nobody has broken.

    The lists come in the order in which the jobs were stored; `after` pages on from the `seq` of
    the last one seen.
    """

    async def running_under_other_boots(
        self, *, besides: str, instance_id: str | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """Running jobs held under another boot than `besides`: by that instance, or by anybody.

        The holder of one whose worker is not known is None, and belongs to no instance.
        """
        ...

    async def detached_jobs(self, *, after: int = 0, limit: int) -> list[Job]:
        """Jobs that neither wait, nor have an open run, nor have ended.

        Each is shown as `running`, under the token of its last run (0 if it has none), with the
        failures and losses that its runs and its chain bear out. Its place is lost: priority 0,
        and a change that puts it back puts it behind the others.
        """
        ...

    async def missing_successors(self, *, after: int = 0, limit: int) -> list[Job]:
        """Jobs of `linked` delivery that ended `failed` and have no successor."""
        ...

    async def remove_orphans(self, *, limit: int) -> list[EventRecord]:
        """Delete up to `limit` closed runs whose job is gone, and answer what was recorded.

        Atomic per run: its event `orphan_run_removed`, of no job, holds a copy of it as JSON.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceDue:
    """What somebody should look at. What is False needs no look: there is nothing of it."""

    lapsed: bool = True  # running jobs whose lease is over
    overdue: bool = True  # queued jobs past their start deadline
    held: bool = True  # queues that a reservation holds
    groups: bool = True  # groups that close, or that nobody completed in time
    deserted: bool = True  # running jobs of a worker of which no process is left

    def __bool__(self) -> bool:
        return self.lapsed or self.overdue or self.held or self.groups or self.deserted


class MaintenanceCheck(Protocol):
    """The capability CHORES."""

    async def maintenance_due(self, *, abandoned: timedelta) -> MaintenanceDue:
        """Everything there is to tidy now, in one question: an idle worker asks it every second.

        `abandoned` is when an incomplete group counts as nobody's.
        """
        ...

"""The contract of upkeep: whether there is anything to tidy, at one look."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, cast

from outlast.store.base import Capability, Store


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


async def check_maintenance(store: Store, *, abandoned: timedelta) -> MaintenanceDue:
    """What there is to tidy; where a store cannot say it at one look, everything may be."""
    if Capability.MAINTENANCE_CHECK not in store.capabilities:
        return MaintenanceDue()
    return await cast("MaintenanceCheck", store).maintenance_due(abandoned=abandoned)

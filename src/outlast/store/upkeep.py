"""The contract of upkeep: whether there is anything to tidy, at one look."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, cast

from outlast.store.base import Capability, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Chores:
    """What somebody should look at. What is False needs no look: there is nothing of it."""

    lapsed: bool = True  # running jobs whose lease is over
    overdue: bool = True  # queued jobs past their start deadline
    held: bool = True  # queues that a reservation holds
    groups: bool = True  # groups that close, or that nobody completed in time
    deserted: bool = True  # running jobs of a worker of which no process is left

    def __bool__(self) -> bool:
        return self.lapsed or self.overdue or self.held or self.groups or self.deserted


class Upkeep(Protocol):
    """The capability CHORES."""

    async def chores(self, *, abandoned: timedelta) -> Chores:
        """Everything there is to tidy now, in one question: an idle worker asks it every second.

        `abandoned` is when an incomplete group counts as nobody's.
        """
        ...


async def look(store: Store, *, abandoned: timedelta) -> Chores:
    """What there is to tidy; where a store cannot say it at one look, everything may be."""
    if Capability.CHORES not in store.capabilities:
        return Chores()
    return await cast("Upkeep", store).chores(abandoned=abandoned)

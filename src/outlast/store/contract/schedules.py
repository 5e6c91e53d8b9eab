"""The contract of schedules and their slots.

A slot is a row, unique by its series and its moment. It is claimed at most once, for ever, by
whoever stores a job for it: `fire` for a schedule, `add` for anybody else. What `fire` writes
without a job (missed, coalesced, overlap) is no claim: one `add` may still take such a slot, and
its row is `manual` from then on, as is the row of any slot that `add` takes. When a job that holds
a slot ends because it could not start in time, the same write makes the slot `skipped`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from outlast.core.event import ZERO
from outlast.core.schedule import Firing, Plan, Schedule, SlotRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What is to be triggered, by the store's clock, and when the next one after these will be."""

    now: datetime
    schedules: Sequence[Schedule]
    next_trigger_at: datetime | None


class FireResult(StrEnum):
    """What became of one `Firing`."""

    WRITTEN = "written"  # the slot's row, its job if it has one, and the schedule's next slot
    TAKEN = "taken"  # somebody had the slot; the schedule goes on to the next, and nothing else
    STALE = "stale"  # the schedule is not as expected; nothing was written
    BUSY = "busy"  # the job's key or active key is taken; nothing was written
    REFUSED = "refused"  # no store can keep such a job; nothing was written


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSchedule:
    """A schedule as it shall be: what somebody plans, and the slot that comes next by it."""

    plan: Plan
    next_slot: datetime | None
    next_trigger_at: datetime | None


class Schedules(Protocol):
    """Schedules, and the slots of their past."""

    async def now(self) -> datetime:
        """What time it is by the store's clock."""
        ...

    async def set_schedule(
        self, schedule_id: str, *, expected: int | None, value: SetSchedule | None
    ) -> Schedule | None:
        """Write it if its version is `expected`; None: if there is none of that id.

        Answers the schedule as written; without a value, the one that is gone, whose slots stay.
        None means that somebody was quicker, or that another schedule has the name; nothing was
        written then. Versions are as those of records: they rise with every write and none is
        given twice. Triggers raise no version, and nothing but them changes `last_triggered_at`.
        """
        ...

    async def schedule(self, name: str) -> Schedule | None:
        """The schedule of that name, or of that id; None if there is none."""
        ...

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        """The next ones by name; `after` pages on from the last name seen."""
        ...

    async def due_schedules(self, *, ahead: timedelta = ZERO, limit: int) -> Due:
        """Enabled schedules whose trigger is due by then, the earliest first; at one moment.

        It costs what is due, not what is kept.
        """
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[FireResult]:
        """Answer slots, each alone: its row, its job, and where its schedule stands from now on.

        Atomic per firing, in the order given. One counts only while the schedule is enabled, has
        that version, and that slot is its next. If the slot has a row, the schedule goes on and
        that is all. A job is stored as `add` would store it, with its slot; then the slot is the
        schedule's `last_triggered_at`. Of many who fire one slot, one writes it.
        """
        ...

    async def slots(
        self, series: str, *, before: datetime | None = None, limit: int
    ) -> list[SlotRecord]:
        """The slots of a series that have a row, the latest first; `before` pages on."""
        ...

    async def slot_rows(self, series: str, moments: Sequence[datetime]) -> list[SlotRecord | None]:
        """The row of each slot, in the order asked; None where there is none."""
        ...

    async def running_names(self, names: Collection[str]) -> frozenset[str]:
        """Which of these names a `once` job runs under now."""
        ...

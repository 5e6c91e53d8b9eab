"""Contract: schedules and their slots.

A slot is a row, unique by series and time. It is claimed at most once, for ever, by the operation
that stores a job for it: `fire` for a schedule, `add` for any other caller. A slot that `fire`
writes without a job (missed, coalesced, overlap) is not claimed: one `add` may still claim it. The
row of a slot that `add` claims is `manual`. If the job of a slot ends because it could not start in
time, the same write makes the slot `skipped`.
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
    """Schedules to trigger, the store's time, and the next trigger after these."""

    now: datetime
    schedules: Sequence[Schedule]
    next_trigger_at: datetime | None


class FireResult(StrEnum):
    """Result of `fire` for one firing."""

    WRITTEN = "written"  # the slot's row, its job if it has one, and the schedule's next slot
    TAKEN = "taken"  # the slot has a row already; only the schedule advances
    STALE = "stale"  # the schedule is not as expected; nothing was written
    BUSY = "busy"  # the job's key or active key is taken; nothing was written
    REFUSED = "refused"  # the job cannot be stored; nothing was written


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSchedule:
    """A schedule to write: its plan and the next slot by that plan."""

    plan: Plan
    next_slot: datetime | None
    next_trigger_at: datetime | None


class Schedules(Protocol):
    """Schedules and their slots."""

    async def now(self) -> datetime:
        """Return the time of the store's clock."""
        ...

    async def set_schedule(
        self, schedule_id: str, *, expected: int | None, value: SetSchedule | None
    ) -> Schedule | None:
        """Write the schedule if its version is `expected`; None as version expects none.

        Returns the schedule as written; without a value, the deleted one, whose slots stay.
        Returns None and writes nothing if the version differs or another schedule has the name.
        Versions rise with every write and none is used twice, as those of documents. A trigger
        raises no version, and only triggers change `last_triggered_at`.
        """
        ...

    async def schedule(self, name: str) -> Schedule | None:
        """Return the schedule of that name or id, or None."""
        ...

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        """Return the next schedules by name; `after` is the last name seen."""
        ...

    async def due_schedules(self, *, ahead: timedelta = ZERO, limit: int) -> Due:
        """Return enabled schedules that trigger by `ahead` from now, the earliest first.

        One snapshot. The cost grows with the due schedules, not with all.
        """
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[FireResult]:
        """Write the slot, the job and the next slot of each firing.

        Atomic per firing, in the order given. A firing is accepted only while the schedule is
        enabled, has that version, and that slot is its next. If the slot has a row, only the
        schedule advances. A job is stored as by `add`, with its slot, which becomes the schedule's
        `last_triggered_at`. Of concurrent firings of one slot, one writes it.

        If the store fails, the error has in `answers` the results of the firings that were
        answered. Repeating the call is safe: a slot that was written answers `taken` or `stale`.
        """
        ...

    async def slots(
        self, series: str, *, before: datetime | None = None, limit: int
    ) -> list[SlotRecord]:
        """Return the stored slots of a series, the latest first; `before` is the last time seen."""
        ...

    async def slot_rows(self, series: str, moments: Sequence[datetime]) -> list[SlotRecord | None]:
        """Return the row of each slot, in the order asked; None for a slot without a row."""
        ...

    async def running_names(self, names: Collection[str]) -> frozenset[str]:
        """Return the names under which a `once` job runs now."""
        ...

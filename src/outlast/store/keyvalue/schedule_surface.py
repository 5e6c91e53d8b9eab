"""The contract's verbs of schedules and slots, each handed to the module that does it."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from outlast.core.event import ZERO
from outlast.core.schedule import Firing, Schedule, SlotRecord
from outlast.store.keyvalue import firing, scheduling, slots
from outlast.store.keyvalue.surface import Opened
from outlast.store.schedules import Due, Fired, SetSchedule


class KeyValueSchedules(Opened):
    """Schedules and slots."""

    async def now(self) -> datetime:
        return self._desk.now()

    async def set_schedule(
        self, schedule_id: str, *, expected: int | None, value: SetSchedule | None
    ) -> Schedule | None:
        return await scheduling.set_schedule(
            self._desk, schedule_id, expected=expected, value=value
        )

    async def schedule(self, name: str) -> Schedule | None:
        return await scheduling.schedule(self._desk, name)

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        return await scheduling.listed(self._desk, after=after, limit=limit)

    async def due_schedules(self, *, ahead: timedelta = ZERO, limit: int) -> Due:
        return await scheduling.due(self._desk, ahead=ahead, limit=limit)

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        return await firing.answer_slots(self._desk, firings)

    async def slots(
        self, series: str, *, before: datetime | None = None, limit: int
    ) -> list[SlotRecord]:
        return await slots.listed(self._desk, series, before=before, limit=limit)

    async def slot_rows(self, series: str, moments: Sequence[datetime]) -> list[SlotRecord | None]:
        return await slots.rows(self._desk, series, moments)

    async def running_names(self, names: Collection[str]) -> frozenset[str]:
        return await scheduling.running_names(self._desk, names)

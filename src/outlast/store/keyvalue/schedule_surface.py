"""The contract's verbs of schedules and slots, each handed to the module that does it."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from outlast.core.event import ZERO
from outlast.core.schedule import Firing, Schedule, SlotRecord
from outlast.store.contract.schedules import Due, FireResult, SetSchedule
from outlast.store.keyvalue.operations import fire, schedules
from outlast.store.keyvalue.repositories import slots
from outlast.store.keyvalue.surface import Opened


class KeyValueSchedules(Opened):
    """Schedules and slots."""

    async def now(self) -> datetime:
        return self._desk.now()

    async def set_schedule(
        self, schedule_id: str, *, expected: int | None, value: SetSchedule | None
    ) -> Schedule | None:
        return await schedules.set_schedule(self._desk, schedule_id, expected=expected, value=value)

    async def schedule(self, name: str) -> Schedule | None:
        return await schedules.schedule(self._desk, name)

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        return await schedules.listed(self._desk, after=after, limit=limit)

    async def due_schedules(self, *, ahead: timedelta = ZERO, limit: int) -> Due:
        return await schedules.due(self._desk, ahead=ahead, limit=limit)

    async def fire(self, firings: Sequence[Firing]) -> list[FireResult]:
        return await fire.answer_slots(self._desk, firings)

    async def slots(
        self, series: str, *, before: datetime | None = None, limit: int
    ) -> list[SlotRecord]:
        return await slots.listed(self._desk, series, before=before, limit=limit)

    async def slot_rows(self, series: str, moments: Sequence[datetime]) -> list[SlotRecord | None]:
        return await slots.rows(self._desk, series, moments)

    async def running_names(self, names: Collection[str]) -> frozenset[str]:
        return await schedules.running_names(self._desk, names)

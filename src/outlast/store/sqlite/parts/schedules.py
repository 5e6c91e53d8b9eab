"""Schedules and slots."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from outlast.clock import from_micros, to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.event import ZERO
from outlast.core.schedule import Firing, Schedule, SlotRecord, check_plan
from outlast.store.contract.schedules import Due, FireResult, SetSchedule
from outlast.store.rows import schedules as schedule_rows
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite import verbs
from outlast.store.sqlite.operations.base import SqliteOperations
from outlast.store.sqlite.reader import Query

_LAST = datetime.max.replace(tzinfo=UTC)


class SqliteSchedules(SqliteOperations):
    """Schedules and slots."""

    async def now(self) -> datetime:
        return self._clock.now()

    async def set_schedule(
        self, schedule_id: str, *, expected: int | None, value: SetSchedule | None
    ) -> Schedule | None:
        if value is not None:
            check_plan(value.plan)
        wish = verbs.ScheduleWrite(id=schedule_id, expected=expected, value=value)
        written: Schedule | None = (await self._writer.submit(verbs.set_schedule, [wish]))[0]
        return written

    async def schedule(self, name: str) -> Schedule | None:
        found = await self._reader.rows("schedules.get", name=name)
        return schedule_rows.schedule(found[0]) if found else None

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        found = await self._reader.rows("schedules.page", after=after, limit=limit)
        return [schedule_rows.schedule(row) for row in found]

    async def due_schedules(self, *, ahead: timedelta = ZERO, limit: int) -> Due:
        now = self._clock.now()
        return await self._reader.in_snapshot(partial(_due, now=now, ahead=ahead, limit=limit))

    async def fire(self, firings: Sequence[Firing]) -> list[FireResult]:
        return await self._writer.submit(verbs.fire, firings) if firings else []

    async def slots(
        self, series: str, *, before: datetime | None = None, limit: int
    ) -> list[SlotRecord]:
        asked = {"before": to_micros(before or _LAST), "limit": limit}
        found = await self._reader.rows("schedules.slots", series=series, **asked)
        return [schedule_rows.slot(row) for row in found]

    async def slot_rows(self, series: str, moments: Sequence[datetime]) -> list[SlotRecord | None]:
        asked = to_json_param([to_micros(at) for at in moments])
        found = await self._reader.rows("schedules.slot_rows", series=series, moments=asked)
        rows = {row.slot.at: row for row in map(schedule_rows.slot, found)}
        return [rows.get(at) for at in moments]

    async def running_names(self, names: Collection[str]) -> frozenset[str]:
        asked = to_json_param(sorted(names))
        found = await self._reader.rows("schedules.running_names", names=asked)
        return frozenset(name for (name,) in found)


def _due(ask: Query, *, now: datetime, ahead: timedelta, limit: int) -> Due:
    until = to_micros(now) + ahead // MICROSECOND
    ready = [schedule_rows.schedule(row) for row in ask("schedules.due", until=until, limit=limit)]
    [(later,)] = ask("schedules.later", until=until)
    return Due(
        now=now, schedules=ready, next_trigger_at=None if later is None else from_micros(later)
    )

"""Schedules and slots."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial

from outlast.clock import from_micros, to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.event import ZERO
from outlast.core.schedule import Firing, Schedule, SlotRecord, check_plan
from outlast.store.contract.schedules import Due, FireResult, SetSchedule
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.operations.savepoint import is_unique_violation
from outlast.store.postgres.uuids import is_uuid
from outlast.store.postgres.verbs import schedule
from outlast.store.postgres.verbs.footing import require_open_store
from outlast.store.rows import schedules as rows
from outlast.store.rows.jobs import LAST


class PostgresSchedules(PostgresOperations):
    """Schedules and slots."""

    async def now(self) -> datetime:
        [(now,)] = await self._lines.rows("schedules.now", now=self._now)
        return from_micros(now)

    async def set_schedule(
        self, schedule_id: str, *, expected: int | None, value: SetSchedule | None
    ) -> Schedule | None:
        if value is not None:
            check_plan(value.plan)
        verb = partial(
            schedule.set_schedule, schedule_id=schedule_id, expected=expected, value=value
        )
        try:
            return await self._lines.transact(require_open_store(verb))
        except Exception as error:
            if not is_unique_violation(error):
                raise
            return None  # another one has the name

    async def schedule(self, name: str) -> Schedule | None:
        known = name if is_uuid(name) else None
        found = await self._lines.rows("schedules.get", name=name, id=known)
        return rows.schedule(tuple(found[0])) if found else None

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        found = await self._lines.rows("schedules.page", after=after, limit=limit)
        return [rows.schedule(tuple(row)) for row in found]

    async def due_schedules(self, *, ahead: timedelta = ZERO, limit: int) -> Due:
        asked = {"now": self._now, "ahead": ahead // MICROSECOND, "limit": limit}
        found = [tuple(row) for row in await self._lines.rows("schedules.due", **asked)]
        now, later = found[0][:2]
        ready = [rows.schedule(row[2:]) for row in found if row[2] is not None]
        following = None if later is None else from_micros(later)
        return Due(now=from_micros(now), schedules=ready, next_trigger_at=following)

    async def fire(self, firings: Sequence[Firing]) -> list[FireResult]:
        if not firings:
            return []
        return await self._lines.transact(
            require_open_store(partial(schedule.fire, firings=firings))
        )

    async def slots(
        self, series: str, *, before: datetime | None = None, limit: int
    ) -> list[SlotRecord]:
        asked = {"before": LAST if before is None else to_micros(before), "limit": limit}
        found = await self._lines.rows("schedules.slots", series=series, **asked)
        return [rows.slot(tuple(row)) for row in found]

    async def slot_rows(self, series: str, moments: Sequence[datetime]) -> list[SlotRecord | None]:
        asked = [to_micros(at) for at in moments]
        found = await self._lines.rows("schedules.slots_at", series=series, moments=asked)
        known = {row.slot.at: row for row in (rows.slot(tuple(row)) for row in found)}
        return [known.get(at) for at in moments]

    async def running_names(self, names: Collection[str]) -> frozenset[str]:
        found = await self._lines.rows("schedules.running_names", names=sorted(names))
        return frozenset(name for (name,) in found)

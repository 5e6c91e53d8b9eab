"""Schedules, written by compare-and-swap and found when they are due."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from outlast.clock import MICROSECOND, from_micros, to_micros
from outlast.core.event import ZERO
from outlast.core.job import Slot
from outlast.core.limits import check_name
from outlast.core.schedule import Schedule, SlotRecord, check_plan
from outlast.errors import StoreCorrupt
from outlast.store.contract.notifications import Notification
from outlast.store.contract.schedules import Due, SetSchedule
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.operations.base import KeyValueOperations, requires_open_store
from outlast.store.keyvalue.repositories import schedules, slots
from outlast.store.keyvalue.repositories.slots import is_name
from outlast.store.keyvalue.unit_of_work import ReadConflict, UnitOfWork

LOOKS: Final = 3
"""Reads of due schedules, where some are triggered meanwhile."""

LATEST: Final = 1 << 62


class KeyValueScheduleOperations(KeyValueOperations):
    """Write and read schedules and slots."""

    @requires_open_store
    async def set_schedule(
        self,
        context: StoreContext,
        schedule_id: str,
        *,
        expected: int | None,
        value: SetSchedule | None,
    ) -> Schedule | None:
        """Write, create or delete a schedule if its version is `expected`; None if it is not."""
        check_name(schedule_id, what="the id of a schedule")
        if value is None:
            return await context.run_unit(
                partial(_remove, schedule_id=schedule_id, expected=expected)
            )
        check_plan(value.plan)
        version = await context.numbers(1)

        async def work(unit: UnitOfWork) -> Schedule | None:
            by_name = schedules.name_key(value.plan.name)
            await unit.fetch([*schedules.record_keys(schedule_id), by_name])
            there, named = await schedules.load(unit, schedule_id), await unit.get(by_name)
            is_taken = named is not None and named["id"] != schedule_id
            if (there and there.version) != expected or is_taken:
                return None
            written = _written(schedule_id, value, there, version, context.now())
            schedules.save(unit, there, written)
            return written

        saved = await context.run_unit(work)
        context.notify(Notification(schedules=True))
        return saved

    async def schedule(self, name: str) -> Schedule | None:
        """Return a schedule by its name or its id; an id is never a name."""
        context = self._context

        async def work(unit: UnitOfWork) -> Schedule | None:
            await unit.fetch([*schedules.record_keys(name), schedules.name_key(name)])
            named = await unit.get(schedules.name_key(name))
            found = await schedules.load(unit, name if named is None else named["id"])
            if named is not None and (found is None or found.name != name):
                raise ReadConflict  # renamed between the two reads
            return found

        return await context.run_unit(work) if is_name(name) else None

    async def schedules(self, *, after: str = "", limit: int) -> list[Schedule]:
        """Return the next schedules by name."""
        context = self._context
        span = KeyRange(key_layout.SCHEDULE_NAME, f"{after}\0" if after else "")
        looks = iter(range(LOOKS))

        async def work(unit: UnitOfWork) -> list[Schedule]:
            entries = await unit.consistent_range(
                [span], limit=limit
            )  # consistent: a renamed one is among them
            return await _found(
                context, unit, entries, _is_named, is_last=next(looks, None) is None
            )

        return await context.run_unit(work)

    async def due_schedules(self, *, ahead: timedelta = ZERO, limit: int) -> Due:
        """Return schedules to trigger until `ahead` from now, and when the next one is."""
        context = self._context
        looks = iter(range(LOOKS))

        async def work(unit: UnitOfWork) -> Due:
            now = context.now()
            end = key_layout.number(min(to_micros(now) + ahead // MICROSECOND, LATEST) + 1)
            entries, later = await context.engine.ranges(
                [
                    (KeyRange(key_layout.TRIGGER, end=end), limit),
                    (KeyRange(key_layout.TRIGGER, end), 1),
                ]
            )
            ready = await _found(context, unit, entries, _is_due, is_last=next(looks, None) is None)
            following = from_micros(later[0].value["at"]) if later else None
            return Due(now=now, schedules=ready, next_trigger_at=following)

        return await context.run_unit(work)

    async def running_names(self, names: Collection[str]) -> frozenset[str]:
        """Return those of `names` under which a `once` job runs."""
        context = self._context
        asked = [Key(key_layout.ONCE, name) for name in sorted(names) if is_name(name)]
        found = await context.engine.get(asked) if asked else []
        return frozenset(entry.key.sort for entry in found if entry is not None)

    async def now(self) -> datetime:
        """Return the time by the store's clock."""
        return self._context.now()

    async def slots(
        self, series: str, *, before: datetime | None = None, limit: int
    ) -> list[SlotRecord]:
        """Return answered slots of a series, the latest first."""
        if not is_name(series):
            return []
        span = key_layout.slots_before(series, before)
        found = await self._context.engine.range(span, limit=limit, reverse=True)
        return [slots.from_value(entry.value) for entry in found]

    async def slot_rows(self, series: str, moments: Sequence[datetime]) -> list[SlotRecord | None]:
        """Return the slots of a series at `moments`; None for those not answered."""
        if not is_name(series):
            return [None for _ in moments]
        keys = [key_layout.slot_key(Slot(series=series, at=at)) for at in moments]
        found = await self._context.engine.get(keys) if keys else []
        return [None if entry is None else slots.from_value(entry.value) for entry in found]


async def _remove(unit: UnitOfWork, *, schedule_id: str, expected: int | None) -> Schedule | None:
    there = await schedules.load(unit, schedule_id)
    if there is None or there.version != expected:
        return None
    schedules.save(unit, there, None)
    return there


def _written(
    schedule_id: str, value: SetSchedule, there: Schedule | None, version: int, now: datetime
) -> Schedule:
    return Schedule(
        id=schedule_id,
        plan=value.plan,
        version=version,
        created_at=there.created_at if there else now,
        updated_at=max(now, there.updated_at + MICROSECOND) if there else now,
        next_slot=value.next_slot,
        next_trigger_at=value.next_trigger_at,
        last_triggered_at=there.last_triggered_at if there else None,
    )


async def _found(
    context: StoreContext,
    unit: UnitOfWork,
    entries: Sequence[StoredItem],
    fits: Callable[[Schedule, StoredItem], bool],
    *,
    is_last: bool,
) -> list[Schedule]:
    """Return the schedules that the entries point to; raise ReadConflict if some changed.

    An entry that stays wrong is broken. The last attempt leaves it out, so that it stops no other.
    """
    ids = [entry.value["id"] for entry in entries]
    await unit.fetch([key for schedule_id in ids for key in schedules.record_keys(schedule_id)])
    pairs = [(await _whole(unit, entry.value["id"]), entry) for entry in entries]
    found = [each for each, entry in pairs if each is not None and fits(each, entry)]
    if len(found) < len(entries) and not is_last:
        await complete_all(context)
        raise ReadConflict
    return found


async def _whole(unit: UnitOfWork, schedule_id: str) -> Schedule | None:
    """Return the schedule; None if its records have different versions, or one is damaged."""
    try:
        return await schedules.load(unit, schedule_id)
    except (ReadConflict, StoreCorrupt):
        return None


def _is_named(schedule: Schedule, entry: StoredItem) -> bool:
    return schedule.name == entry.key.sort


def _is_due(schedule: Schedule, entry: StoredItem) -> bool:
    return schedules.trigger_of(schedule) == entry.key

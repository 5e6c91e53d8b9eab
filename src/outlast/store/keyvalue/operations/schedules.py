"""The verbs of schedules: written by whoever knows their version, and found when they are due."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from outlast.clock import MICROSECOND, from_micros, to_micros
from outlast.core.limits import check_name
from outlast.core.schedule import Schedule, check_plan
from outlast.store.contract.schedules import Due, SetSchedule
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.repositories import schedules
from outlast.store.keyvalue.repositories.slots import is_name
from outlast.store.keyvalue.unit_of_work import ReadConflict, UnitOfWork

LOOKS: Final = 3
"""How often it looks again where what is due was triggered while it looked."""

LATEST: Final = 1 << 62


async def set_schedule(
    desk: StoreContext, schedule_id: str, *, expected: int | None, value: SetSchedule | None
) -> Schedule | None:
    check_name(schedule_id, what="the id of a schedule")
    if value is None:
        return await desk.run_unit(partial(_remove, schedule_id=schedule_id, expected=expected))
    check_plan(value.plan)
    version = await desk.numbers(1)

    async def work(unit: UnitOfWork) -> Schedule | None:
        by_name = schedules.name_key(value.plan.name)
        await unit.fetch([*schedules.record_keys(schedule_id), by_name])
        there, named = await schedules.load(unit, schedule_id), await unit.get(by_name)
        is_taken = named is not None and named["id"] != schedule_id
        if (there and there.version) != expected or is_taken:
            return None
        written = _written(schedule_id, value, there, version, desk.now())
        schedules.save(unit, there, written)
        return written

    return await desk.run_unit(work)


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


async def schedule(desk: StoreContext, name: str) -> Schedule | None:
    """By its name or its id: an id is never a name."""

    async def work(unit: UnitOfWork) -> Schedule | None:
        await unit.fetch([*schedules.record_keys(name), schedules.name_key(name)])
        named = await unit.get(schedules.name_key(name))
        found = await schedules.load(unit, name if named is None else named["id"])
        if named is not None and (found is None or found.name != name):
            raise ReadConflict  # it was renamed between the two reads
        return found

    return await desk.run_unit(work) if is_name(name) else None


async def listed(desk: StoreContext, *, after: str, limit: int) -> list[Schedule]:
    """The next ones by name."""
    span = KeyRange(key_layout.SCHEDULE_NAME, f"{after}\0" if after else "")
    looks = iter(range(LOOKS))

    async def work(unit: UnitOfWork) -> list[Schedule]:
        entries = await unit.consistent_range(
            [span], limit=limit
        )  # one that is renamed is among them
        return await _found(desk, unit, entries, _is_named, is_last=next(looks, None) is None)

    return await desk.run_unit(work)


async def due(desk: StoreContext, *, ahead: timedelta, limit: int) -> Due:
    """What is to be triggered by then: two short ranges, and the schedules that are due."""
    looks = iter(range(LOOKS))

    async def work(unit: UnitOfWork) -> Due:
        now = desk.now()
        end = key_layout.number(min(to_micros(now) + ahead // MICROSECOND, LATEST) + 1)
        entries, later = await desk.engine.ranges(
            [(KeyRange(key_layout.TRIGGER, end=end), limit), (KeyRange(key_layout.TRIGGER, end), 1)]
        )
        ready = await _found(desk, unit, entries, _is_due, is_last=next(looks, None) is None)
        following = from_micros(later[0].value["at"]) if later else None
        return Due(now=now, schedules=ready, next_trigger_at=following)

    return await desk.run_unit(work)


async def _found(
    desk: StoreContext,
    unit: UnitOfWork,
    entries: Sequence[StoredItem],
    fits: Callable[[Schedule, StoredItem], bool],
    *,
    is_last: bool,
) -> list[Schedule]:
    """The schedules that these entries lead to, all as they say, or Stale: they were changed.

    An entry that stays wrong is broken; the last look leaves it out, for it must not stop others.
    """
    ids = [entry.value["id"] for entry in entries]
    await unit.fetch([key for schedule_id in ids for key in schedules.record_keys(schedule_id)])
    pairs = [(await _whole(unit, entry.value["id"]), entry) for entry in entries]
    found = [each for each, entry in pairs if each is not None and fits(each, entry)]
    if len(found) < len(entries) and not is_last:
        await complete_all(desk)
        raise ReadConflict
    return found


async def _whole(unit: UnitOfWork, schedule_id: str) -> Schedule | None:
    """None too if its two halves are not of one version."""
    try:
        return await schedules.load(unit, schedule_id)
    except ReadConflict:
        return None


def _is_named(schedule: Schedule, entry: StoredItem) -> bool:
    return schedule.name == entry.key.sort


def _is_due(schedule: Schedule, entry: StoredItem) -> bool:
    return schedules.trigger_of(schedule) == entry.key


async def running_names(desk: StoreContext, names: Collection[str]) -> frozenset[str]:
    """Those that a `once` job runs under."""
    asked = [Key(key_layout.ONCE, name) for name in sorted(names) if is_name(name)]
    found = await desk.engine.get(asked) if asked else []
    return frozenset(entry.key.sort for entry in found if entry is not None)

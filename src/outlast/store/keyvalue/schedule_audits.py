"""Schedules that do not agree with what they are found by, for `verify`."""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from functools import partial
from typing import Final

from outlast.core.audit.model import DanglingKind, DanglingRecord
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, Value
from outlast.store.keyvalue.pages import scan_partition
from outlast.store.keyvalue.repositories import schedules
from outlast.store.keyvalue.unit_of_work import UnitOfWork

FOUND_BY: Final = (key_layout.SCHEDULE_NAME, key_layout.TRIGGER)


async def strays(desk: StoreContext) -> AsyncIterator[DanglingRecord]:
    """From one reading of all; whoever looks wrong there is looked at again, at one moment."""
    held: dict[str, dict[Key, Value | None]] = defaultdict(dict)
    for part in (key_layout.SCHEDULE, key_layout.STANDING, *FOUND_BY):
        async for entry in scan_partition(desk, part):
            held[entry.value["id"]][entry.key] = entry.value
    for schedule_id, records in held.items():
        if _apart(schedule_id, records):
            rows = await desk.run_unit(partial(_look, schedule_id=schedule_id, seen=list(records)))
            if rows:
                yield DanglingRecord(kind=DanglingKind.SCHEDULE, rows=rows, about=schedule_id)


async def _look(unit: UnitOfWork, *, schedule_id: str, seen: Collection[Key]) -> tuple[str, ...]:
    own = schedules.record_keys(schedule_id)
    await unit.fetch([*own, *seen])
    wanted = schedules.found_by(*[await unit.get(key) for key in own])
    await unit.fetch(list(wanted))
    records = {key: await unit.get(key) for key in {*own, *seen, *wanted}}
    await unit.require_unchanged()
    return _apart(schedule_id, records)


def _apart(schedule_id: str, records: Mapping[Key, Value | None]) -> tuple[str, ...]:
    """Where one half is without the other, and entries that are missing or too many."""
    planned, standing = [records.get(key) for key in schedules.record_keys(schedule_id)]
    if (planned and planned["version"]) != (standing and standing["version"]):
        return tuple(f"{key.part} {key.sort}" for key in schedules.record_keys(schedule_id))
    found = {
        key
        for key, value in records.items()
        if key.part in FOUND_BY and value is not None and value["id"] == schedule_id
    }
    apart = found ^ schedules.found_by(planned, standing)
    return tuple(f"{key.part} {key.sort}" for key in sorted(apart))

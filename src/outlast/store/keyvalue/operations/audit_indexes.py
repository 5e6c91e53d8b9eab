"""Index entries that records need and that are missing, and entries that lead nowhere."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from outlast.core.audit.model import DanglingKind, DanglingRecord
from outlast.core.delivery import Delivery
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext, pages, scan_partition
from outlast.store.keyvalue.engine import DamagedValue, Key, StoredItem, Value
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.repositories import groups, key_windows, queues, reservations
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories.job_codec import from_value
from outlast.store.keyvalue.repositories.record_check import is_foreign
from outlast.store.keyvalue.unit_of_work import UnitOfWork

Wanted = Callable[[Value], Sequence[Key]]


async def mismatches(context: StoreContext) -> AsyncIterator[DanglingRecord]:
    """Yield records without an index entry, and entries without their record."""
    for part, wanted in WANTED.items():
        async for page in pages(context, part):
            for record in await _named(context, page, wanted):
                yield record
    for part in ("window#", "debounce#"):
        async for entry in context.engine.scan(part):
            for record in await _named(context, [entry], _of_window):
                yield record
    async for entry in scan_partition(context, key_layout.ONCE):
        if await context.run_unit(partial(_is_left, entry=entry)):
            rows = (f"{key_layout.ONCE} {entry.key.sort}",)
            yield DanglingRecord(kind=DanglingKind.INDEX, rows=rows, about=entry.key.sort)


async def _named(
    context: StoreContext, page: Sequence[StoredItem], wanted: Wanted
) -> list[DanglingRecord]:
    """Return the missing entries of the records of a page."""
    found = []
    for entry in await _lacking(context, page, wanted):
        await complete_all(context)  # an entry may be late, and then is not missing
        missing = await context.run_unit(partial(_missing, key=entry.key, wanted=wanted))
        about = f"{entry.key.part} {entry.key.sort}"
        rows = [(f"{key.part} {key.sort}",) for key in missing]
        found += [DanglingRecord(kind=DanglingKind.INDEX, rows=row, about=about) for row in rows]
    return found


async def _lacking(
    context: StoreContext, page: Sequence[StoredItem], wanted: Wanted
) -> list[StoredItem]:
    sound = [entry for entry in page if entry.damage is None and not is_foreign(entry)]
    keys = [(entry, key) for entry in sound for key in wanted(entry.value)]
    found = await context.engine.get([key for _, key in keys])
    lacking = {
        entry.key: entry for (entry, _), there in zip(keys, found, strict=True) if there is None
    }
    return list(lacking.values())


async def _missing(unit: UnitOfWork, *, key: Key, wanted: Wanted) -> list[Key]:
    """Return the missing entries of a record, all read at one moment."""
    value = await unit.get(key)
    if value is None or isinstance(value, DamagedValue):
        return []
    keys = wanted(value)
    await unit.fetch(keys)
    missing = [each for each in keys if await unit.get(each) is None]
    await unit.require_unchanged()
    return missing


async def _is_left(unit: UnitOfWork, *, entry: StoredItem) -> bool:
    """Return True if no `once` job of that name runs."""
    value = await unit.get(entry.key)
    if value is None or isinstance(value, DamagedValue):
        return False
    record = await job_repository.load(unit, value["job_id"])
    is_held = record is not None and record.is_open and record.job.name == entry.key.sort
    await unit.require_unchanged()
    return not is_held and await job_repository.damage(unit, value["job_id"]) is None


def _of_job(value: Value) -> Sequence[Key]:
    record = from_value(value)
    job = record.job
    if record.pending is not None or record.is_marked:
        return ()
    keys = [key_layout.seq_key(job.seq), Key(key_layout.QUEUE_NAME, job.queue)]
    if record.is_open and job.delivery is Delivery.ONCE:
        keys.append(Key(key_layout.ONCE, job.name))
    if record.reservation is not None:
        keys.append(reservations.key(record.reservation))
    return keys


def _of_reservation(value: Value) -> Sequence[Key]:
    held = reservations.from_value(value).reservation
    keys = [reservations.pointer(held.id)]
    return [*keys, queues.key(held.queue)] if held.is_active else keys


def _of_window(value: Value) -> Sequence[Key]:
    return [key_windows.from_value(value).entry]


def _of_queue(value: Value) -> Sequence[Key]:
    return [reservations.key(value["reservation"])] if "reservation" in value else []


WANTED: Final[Mapping[str, Wanted]] = {
    key_layout.JOB: _of_job,
    key_layout.SEQ: lambda value: [key_layout.pointer(value["id"])],
    key_layout.STREAM: lambda v: [key_layout.event_key(v.get("job_id"), v["id"])],
    key_layout.EVENT: lambda value: [key_layout.stream_key(value["id"])],
    key_layout.WINDOW_END: lambda value: [key_windows.place_of(value)],
    key_layout.GROUP: lambda value: groups.index_keys(groups.from_value(value)),
    key_layout.RESERVATION: _of_reservation,
    key_layout.QUEUE: _of_queue,
    groups.CLOSING: lambda value: [groups.key_of(value["seq"])],
    groups.FILLING: lambda value: [groups.key_of(value["seq"])],
    groups.EMPTIED: lambda value: [groups.key_of(value["seq"])],
}
"""Per part, the records that must exist beside one of it; `audit` looks at all others."""

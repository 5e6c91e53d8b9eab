"""Slots: one record for each that was answered, and what becomes of it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from outlast.core.ids import JobId
from outlast.core.job import Job, Slot
from outlast.core.limits import check_name
from outlast.core.schedule import SlotOutcome, SlotRecord
from outlast.errors import InvalidArgument
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Value
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork


async def listed(
    desk: StoreContext, series: str, *, before: datetime | None, limit: int
) -> list[SlotRecord]:
    """Those of a series, the latest first."""
    if not is_name(series):
        return []
    span = key_layout.slots_before(series, before)
    found = await desk.engine.range(span, limit=limit, reverse=True)
    return [from_value(entry.value) for entry in found]


async def rows(
    desk: StoreContext, series: str, moments: Sequence[datetime]
) -> list[SlotRecord | None]:
    """In the order asked; None where there is none."""
    if not is_name(series):
        return [None for _ in moments]
    keys = [key_layout.slot_key(Slot(series=series, at=at)) for at in moments]
    found = await desk.engine.get(keys) if keys else []
    return [None if entry is None else from_value(entry.value) for entry in found]


def is_name(text: str) -> bool:
    """Whether it can be the name of anything."""
    try:
        check_name(text, what="name")
    except InvalidArgument:
        return False
    return True


def save(unit: UnitOfWork, row: SlotRecord) -> None:
    unit.put(key_layout.slot_key(row.slot), _to_value(row))


async def take_by_hand(unit: UnitOfWork, slot: Slot, job: Job) -> None:
    """For a job that no schedule made: a slot that nobody answered, or without a job."""
    value = await unit.get(key_layout.slot_key(slot))
    there = None if value is None else from_value(value)
    row = SlotRecord(
        slot=slot,
        outcome=SlotOutcome.MANUAL,
        planned=there.planned if there else slot.at,
        actual=job.created_at,
        schedule_id=there.schedule_id if there else job.schedule_id,
        job_id=job.root_id,
        reason=there.outcome if there else None,
    )
    save(unit, row)


async def misfire(unit: UnitOfWork, kept: JobRecord) -> None:
    """The job of a slot could not start in time: the slot stays its own, and was skipped."""
    row = await held(unit, kept)
    if row is not None:
        save(unit, replace(row, outcome=SlotOutcome.SKIPPED))


async def held(unit: UnitOfWork, kept: JobRecord) -> SlotRecord | None:
    """The row of the slot that the job was made for, while it is the job's own."""
    if kept.series is None or kept.job.slot_at is None:
        return None
    value = await unit.get(key_layout.slot_key(Slot(series=kept.series, at=kept.job.slot_at)))
    row = None if value is None else from_value(value)
    return row if row is not None and row.job_id == kept.job.id else None


def from_value(value: Value) -> SlotRecord:
    job_id = value.get("job_id")
    return SlotRecord(
        slot=Slot(series=value["series"], at=key_layout.at_stamp(value["slot_at"])),
        outcome=SlotOutcome(value["outcome"]),
        planned=key_layout.at_stamp(value["planned"]),
        actual=key_layout.at_stamp(value["actual"]),
        schedule_id=value.get("schedule_id"),
        job_id=None if job_id is None else JobId(job_id),
        reason=value.get("reason"),
    )


def _to_value(row: SlotRecord) -> Value:
    value = {
        "series": row.slot.series,
        "slot_at": key_layout.time_key(row.slot.at),
        "outcome": row.outcome.value,
        "planned": key_layout.time_key(row.planned),
        "actual": key_layout.time_key(row.actual),
        "schedule_id": row.schedule_id,
        "job_id": row.job_id,
        "reason": row.reason,
    }
    return {name: each for name, each in value.items() if each is not None}

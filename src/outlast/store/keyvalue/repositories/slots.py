"""Slot records: one for each answered slot."""

from dataclasses import replace

from outlast.core.ids import JobId
from outlast.core.job import Job, Slot
from outlast.core.limits import check_name
from outlast.core.schedule import SlotOutcome, SlotRecord
from outlast.errors import InvalidArgument
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Value
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork


def is_name(text: str) -> bool:
    """Return True if the text is a valid name."""
    try:
        check_name(text, what="name")
    except InvalidArgument:
        return False
    return True


def save(unit: UnitOfWork, row: SlotRecord) -> None:
    """Write the record of a slot."""
    unit.put(key_layout.slot_key(row.slot), _to_value(row))


async def take_by_hand(unit: UnitOfWork, slot: Slot, job: Job) -> None:
    """Assign a slot without a job to a job that no schedule made."""
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


async def misfire(unit: UnitOfWork, record: JobRecord) -> None:
    """Mark the job's slot as skipped: the job missed its start deadline."""
    row = await held(unit, record)
    if row is not None:
        save(unit, replace(row, outcome=SlotOutcome.SKIPPED))


async def held(unit: UnitOfWork, record: JobRecord) -> SlotRecord | None:
    """Return the slot that the job was made for, while it names the job."""
    if record.series is None or record.job.slot_at is None:
        return None
    value = await unit.get(key_layout.slot_key(Slot(series=record.series, at=record.job.slot_at)))
    row = None if value is None else from_value(value)
    return row if row is not None and row.job_id == record.job.id else None


def from_value(value: Value) -> SlotRecord:
    """Return the slot record of a stored value."""
    job_id = value.get("job_id")
    return SlotRecord(
        slot=Slot(series=value["series"], at=key_layout.from_time_key(value["slot_at"])),
        outcome=SlotOutcome(value["outcome"]),
        planned=key_layout.from_time_key(value["planned"]),
        actual=key_layout.from_time_key(value["actual"]),
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

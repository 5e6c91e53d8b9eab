"""Mappers between rows and schedules and slots."""

from typing import Any

from outlast.clock import from_micros, to_micros
from outlast.core.job import Slot
from outlast.core.schedule import Schedule, SlotOutcome, SlotRecord
from outlast.core.schedule_codec import from_text, to_text
from outlast.store.contract.schedules import SetSchedule
from outlast.store.rows.jobs import Row


def schedule(row: Row) -> Schedule:
    """Return the schedule of a row."""
    schedule_id, name, plan, version, created_at, updated_at, slot, trigger_at, last = row
    return Schedule(
        id=schedule_id,
        plan=from_text(name, plan),
        version=version,
        created_at=from_micros(created_at),
        updated_at=from_micros(updated_at),
        next_slot=_moment(slot),
        next_trigger_at=_moment(trigger_at),
        last_triggered_at=_moment(last),
    )


def values(value: SetSchedule) -> dict[str, Any]:
    """Return the parameters that write a schedule."""
    return {
        "name": value.plan.name,
        "plan": to_text(value.plan),
        "enabled": value.plan.enabled,
        "next_slot": number(value.next_slot),
        "next_trigger_at": number(value.next_trigger_at),
    }


def slot(row: Row) -> SlotRecord:
    """Return the slot of a row."""
    series, at, outcome, planned, actual, schedule_id, job_id, reason = row
    return SlotRecord(
        slot=Slot(series=series, at=from_micros(at)),
        outcome=SlotOutcome(outcome),
        planned=from_micros(planned),
        actual=from_micros(actual),
        schedule_id=schedule_id,
        job_id=job_id,
        reason=reason,
    )


def number(at: Any) -> int | None:
    """Return a time in microseconds; None stays None."""
    return None if at is None else to_micros(at)


def _moment(microseconds: int | None) -> Any:
    return None if microseconds is None else from_micros(microseconds)

"""Schedule records: plan, trigger state and index entries.

The plan, which may be long, is apart from the trigger state, which is all that a trigger reads and
writes. Both carry the version, so that a read detects half of an edit.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outlast.clock import to_micros
from outlast.core.schedule import Schedule
from outlast.core.schedule_codec import from_text, to_text
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Key, Value
from outlast.store.keyvalue.unit_of_work import ReadConflict, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerState:
    """What a trigger of the schedule compares and changes."""

    id: str
    version: int
    enabled: bool
    next_slot: datetime | None
    next_trigger_at: datetime | None
    last_triggered_at: datetime | None

    @property
    def trigger(self) -> Key | None:
        """Key of the due entry; None while disabled, or if no slot follows."""
        if not self.enabled or self.next_trigger_at is None:
            return None
        return Key(key_layout.TRIGGER, key_layout.trigger_sort(self.next_trigger_at, self.id))


def record_keys(schedule_id: str) -> list[Key]:
    """Return the keys of the schedule's two records."""
    return [Key(key_layout.SCHEDULE, schedule_id), trigger_state_key(schedule_id)]


def trigger_state_key(schedule_id: str) -> Key:
    """Return the key of the trigger state."""
    return Key(key_layout.SCHEDULE_STATE, schedule_id)


def name_key(name: str) -> Key:
    """Return the key of the name entry."""
    return Key(key_layout.SCHEDULE_NAME, name)


async def load(unit: UnitOfWork, schedule_id: str) -> Schedule | None:
    """Return the schedule, or None; raise ReadConflict if its records differ in version."""
    await unit.fetch(record_keys(schedule_id))
    planned, state = [await unit.get(key) for key in record_keys(schedule_id)]
    if planned is None and state is None:
        return None
    if planned is None or state is None or planned["version"] != state["version"]:
        raise ReadConflict  # edited between the two reads
    return from_values(planned, state)


async def load_trigger_state(unit: UnitOfWork, schedule_id: str) -> TriggerState | None:
    """Return the trigger state, or None."""
    value = await unit.get(trigger_state_key(schedule_id))
    return None if value is None else _to_trigger_state(value)


def save(unit: UnitOfWork, old: Schedule | None, new: Schedule | None) -> None:
    """Write the schedule with all its index entries, changed or not: saving repairs them."""
    known = new or old
    assert known is not None
    save_trigger_state(
        unit,
        None if old is None else _trigger_state(old),
        None if new is None else _trigger_state(new),
    )
    if old is not None and (new is None or new.name != old.name):
        unit.delete(name_key(old.name))
    if new is None:
        unit.delete(Key(key_layout.SCHEDULE, known.id))
    else:
        unit.put(name_key(new.name), {"id": new.id})
        unit.put(Key(key_layout.SCHEDULE, new.id), _plan_value(new))


def save_trigger_state(
    unit: UnitOfWork, old: TriggerState | None, new: TriggerState | None
) -> None:
    """Write the trigger state and its due entry."""
    known = new or old
    assert known is not None
    if old is not None and old.trigger is not None:
        unit.delete(old.trigger)
    if new is None:
        unit.delete(trigger_state_key(known.id))
        return
    unit.put(trigger_state_key(new.id), _trigger_state_value(new))
    if new.trigger is not None:
        unit.put(new.trigger, _trigger_value(new))


def found_by(planned: Value | None, state: Value | None) -> set[Key]:
    """Return the index entries that the two records require; none if the schedule is gone."""
    if planned is None or state is None:
        return set()
    trigger = _to_trigger_state(state).trigger
    return {name_key(planned["name"]), *([] if trigger is None else [trigger])}


def trigger_of(schedule: Schedule) -> Key | None:
    """Return the key of the due entry, or None."""
    return _trigger_state(schedule).trigger


def from_values(planned: Value, state: Value) -> Schedule:
    """Return the schedule of its two stored values."""
    trigger = _to_trigger_state(state)
    return Schedule(
        id=trigger.id,
        plan=from_text(planned["name"], planned["plan"]),
        version=trigger.version,
        created_at=key_layout.from_time_key(planned["created_at"]),
        updated_at=key_layout.from_time_key(planned["updated_at"]),
        next_slot=trigger.next_slot,
        next_trigger_at=trigger.next_trigger_at,
        last_triggered_at=trigger.last_triggered_at,
    )


def _trigger_state(schedule: Schedule) -> TriggerState:
    return TriggerState(
        id=schedule.id,
        version=schedule.version,
        enabled=schedule.plan.enabled,
        next_slot=schedule.next_slot,
        next_trigger_at=schedule.next_trigger_at,
        last_triggered_at=schedule.last_triggered_at,
    )


def _plan_value(schedule: Schedule) -> Value:
    return {
        "id": schedule.id,
        "name": schedule.name,
        "version": schedule.version,
        "plan": to_text(schedule.plan),
        "created_at": key_layout.time_key(schedule.created_at),
        "updated_at": key_layout.time_key(schedule.updated_at),
    }


def _trigger_state_value(state: TriggerState) -> Value:
    value: dict[str, Any] = {
        "id": state.id,
        "version": state.version,
        "enabled": state.enabled,
        "next_slot": _text(state.next_slot),
        "next_trigger_at": _text(state.next_trigger_at),
        "last_triggered_at": _text(state.last_triggered_at),
    }
    return {name: each for name, each in value.items() if each is not None}


def _trigger_value(state: TriggerState) -> Value:
    assert state.next_trigger_at is not None
    return {"id": state.id, "at": to_micros(state.next_trigger_at)}


def _to_trigger_state(value: Value) -> TriggerState:
    return TriggerState(
        id=value["id"],
        version=value["version"],
        enabled=value["enabled"],
        next_slot=_moment(value.get("next_slot")),
        next_trigger_at=_moment(value.get("next_trigger_at")),
        last_triggered_at=_moment(value.get("last_triggered_at")),
    )


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else key_layout.time_key(moment)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else key_layout.from_time_key(text)

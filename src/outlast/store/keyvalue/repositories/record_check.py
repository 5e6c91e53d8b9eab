"""The one place that judges stored records: fields, their kinds, and the key they demand."""

from collections.abc import Callable
from typing import Final

from outlast.core.schedule_codec import from_text
from outlast.core.state import FINAL, State
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import DamagedValue, Key, StoredItem, Value
from outlast.store.keyvalue.key_layout import (
    from_time_key,
    key_safe,
    lane_start,
    number,
    time_key,
    window_key,
)
from outlast.store.keyvalue.repositories.field_kinds import why_misshapen
from outlast.store.keyvalue.repositories.job_codec import STATUS
from outlast.store.keyvalue.repositories.record_shapes import shape_of

_OWN: Final = ("seq", "root_seq", "state", "token", "delivery")
"""Fields of a job beyond those of the S2 format."""

_STATES: Final = frozenset(state.value for state in State)
_FINAL: Final = frozenset(state.value for state in FINAL)
_OPEN_FIELDS: Final = ("lease_at", "lease_boot", "run_id", "run_started_at")


def checked(item: StoredItem) -> StoredItem:
    """Return the record, with a DamagedValue if it does not parse or has another key."""
    why = why_damaged(item)
    if why is None or item.damage is not None:
        return item
    return StoredItem(item.key, DamagedValue(item.key, why), item.version)


def why_damaged(item: StoredItem) -> str | None:
    """Return what is wrong with a record; None if it parses and has its key."""
    if item.damage is not None:
        return item.damage
    shape = shape_of(item.key.part)
    if shape is None:
        return None
    why = why_misshapen(item.value, shape)
    if why is None and (check := _CHECKS.get(item.key.part.partition("#")[0])) is not None:
        why = check(item.key, item.value)
    return why


def is_foreign(item: StoredItem) -> bool:
    """Return True for an item in the S2 format that Outlast did not write."""
    is_job = item.key.part == key_layout.JOB and not isinstance(item.value, DamagedValue)
    return is_job and not any(name in item.value for name in _OWN)


def _job(key: Key, value: Value) -> str | None:
    wanted = f"scheduled#{time_key(from_time_key(value['scheduled_for']))}#{value['job_id']}"
    if key.sort != wanted:
        return f"scheduled_for and job_id demand the sort key {wanted}"
    if not {"payload", "payload_sk"} & value.keys():
        return "payload is missing"
    return _contradiction(value) if value.get("state") in _STATES else None


def _contradiction(value: Value) -> str | None:
    """Return how state, status and open run contradict each other."""
    state = value["state"]
    is_running = state == State.RUNNING
    for name in _OPEN_FIELDS:
        if (name in value) is not is_running:
            found = "is there" if name in value else "is missing"
            return f"state is {state}, and {name} {found}"
    was_put_off = state == State.RETRY_WAIT and not value["attempts"]
    status = "pending" if was_put_off else STATUS[State(state)]
    if state not in _FINAL and value.get("status") != status:
        return f"status is {value.get('status')!r:.60}, and state {state} demands {status}"
    return None


def _sorted_by(wanted: Callable[[Value], str]) -> Callable[[Key, Value], str | None]:
    """Return the check that the sort key is the one that the fields demand."""

    def check(key: Key, value: Value) -> str | None:
        sort = wanted(value)
        return None if key.sort == sort else f"its fields demand the sort key {sort}"

    return check


def _waiting(key: Key, value: Value) -> str | None:
    start = f"{lane_start(value['priority'])}{number(value['position'])}.{number(value['due'])}."
    is_own = key.sort.startswith(start) and key.sort.endswith(f".{number(value['seq'])}")
    return None if is_own else f"its fields demand a sort key that begins with {start}"


def _window(key: Key, value: Value) -> str | None:
    wanted = window_key(value["scope"], value["key"], value["bucket"])
    return None if key == wanted else f"its fields demand the key {wanted.part} {wanted.sort}"


def _plan(key: Key, value: Value) -> str | None:
    try:
        from_text(value["name"], value["plan"])
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        return f"plan does not parse: {type(error).__name__} {error}"
    return _sorted_by(lambda each: each["id"])(key, value)


_CHECKS: Final[dict[str, Callable[[Key, Value], str | None]]] = {
    key_layout.JOB: _job,
    "ready": _waiting,
    "later": _waiting,
    "open": _sorted_by(
        lambda v: f"{v['lease_boot']}#{number(v['lease_at'])}.{number(v['seq'])}",
    ),
    key_layout.ENDED: _sorted_by(lambda v: f"{number(v['at'])}.{number(v['seq'])}"),
    key_layout.RUN: _sorted_by(lambda v: f"{v['job_id']}#{number(v['token'])}"),
    key_layout.STREAM: _sorted_by(lambda v: number(v["id"])),
    key_layout.ACTIVE: _sorted_by(lambda v: key_safe(v["key"])),
    "window": _window,
    "debounce": _window,
    key_layout.SLOT: _sorted_by(
        lambda v: f"{v['series']}#{time_key(from_time_key(v['slot_at']))}",
    ),
    key_layout.SCHEDULE: _plan,
    key_layout.SCHEDULE_STATE: _sorted_by(lambda v: str(v["id"])),
    key_layout.TRIGGER: _sorted_by(lambda v: f"{number(v['at'])}.{v['id']}"),
    key_layout.QUEUE: _sorted_by(lambda v: key_safe(v["name"])),
    key_layout.QUEUE_NAME: _sorted_by(lambda v: str(v["name"])),
    key_layout.RESERVATION: _sorted_by(lambda v: number(v["seq"])),
    key_layout.GROUP: _sorted_by(lambda v: number(v["seq"])),
}
"""Checks of key against content, by the first word of the part."""

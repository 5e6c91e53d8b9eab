"""Shapes of the stored records, by part."""

from typing import Final

from outlast.core.delivery import Delivery
from outlast.core.event import EventKind
from outlast.core.group import ClosePolicy, GroupMode, OnMemberFailure
from outlast.core.ordering import Ordering
from outlast.core.reservation import ReservationStatus
from outlast.core.schedule import SlotOutcome
from outlast.core.state import RunStatus, State
from outlast.core.worker import Topology
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.repositories.field_kinds import (
    Shape,
    anything,
    body,
    flag,
    maybe,
    metadata,
    moment,
    number,
    priority,
    text,
    texts,
    word,
)

JOB: Final[Shape] = {
    "job_id": text,
    "seq": number,
    "job_type": text,
    "name": text,
    "payload": maybe(text),
    "payload_sk": maybe(body),
    "queue": text,
    "delivery": word(Delivery),
    "priority": priority,
    "position": number,
    "max_attempts": maybe(number),
    "created_at": moment,
    "scheduled_for": moment,
    "slot_at": maybe(moment),
    "start_deadline": maybe(moment),
    "retry_of": maybe(text),
    "root_id": text,
    "root_seq": number,
    "group_id": maybe(text),
    "template_id": maybe(text),
    "template_at": maybe(moment),
    "schedule_id": maybe(text),
    "reason": maybe(text),
    "token": number,
    "attempts": number,
    "losses": number,
    "cancel_requested": flag,
    "holder": maybe(text),
    "boot_id": maybe(text),
    "started_at": maybe(moment),
    "finished_at": maybe(moment),
    "progress": maybe(text),
    "active_key": maybe(text),
    "metadata": maybe(metadata),
    "locked_by": maybe(text),
    "lock_expires_at": maybe(moment),
    "last_error": maybe(text),
    "last_error_sk": maybe(body),
    "lease_at": maybe(number),
    "lease_boot": maybe(text),
    "listed_at": maybe(number),
    "listed_boot": maybe(text),
    "run_id": maybe(text),
    "run_started_at": maybe(moment),
    "is_counted": maybe(flag),
    "successor": maybe(text),
    "is_followed": maybe(flag),
    "dedupe_key": maybe(text),
    "dedupe_bucket": maybe(text),
    "held_key": maybe(text),
    "series": maybe(text),
    "member": maybe(text),
    "reservation": maybe(number),
    "pending": maybe(text),
    "pruning": maybe(flag),
}
"""A job whose `state` is no known word is detached, which recovery repairs."""

_WAITING: Final[Shape] = {
    "id": text,
    "seq": number,
    "sort": text,
    "type": text,
    "state": word(State),
    "due": number,
    "position": number,
    "priority": priority,
    "name": maybe(text),
    "deadline": maybe(number),
    "can_wait": flag,
}
_OPEN: Final[Shape] = {
    "id": text,
    "seq": number,
    "sort": text,
    "type": text,
    "name": text,
    "once": flag,
    "holder": maybe(text),
    "boot": maybe(text),
    "started": number,
    "lease_at": number,
    "lease_boot": text,
    "cancel": flag,
}
_ENDED: Final[Shape] = {
    "id": text,
    "seq": number,
    "sort": text,
    "queue": text,
    "state": word(State),
    "at": number,
    "tip": flag,
    "makes_room": flag,
}
_MEMBER: Final[Shape] = {
    "id": text,
    "seq": number,
    "root": number,
    "state": word(State),
    "followed": flag,
    "asked": flag,
    "loose": flag,
}
_RUN: Final[Shape] = {
    "run_id": text,
    "job_id": text,
    "token": number,
    "status": word(RunStatus),
    "reason": maybe(text),
    "holder": text,
    "boot_id": text,
    "started_at": moment,
    "finished_at": moment,
    "error": maybe(text),
    "error_sk": maybe(body),
    "result": maybe(text),
    "result_sk": maybe(body),
    "exit_code": maybe(number),
    "log_path": maybe(text),
    "progress": maybe(text),
}
_EVENT: Final[Shape] = {
    "id": number,
    "at": moment,
    "job_id": maybe(text),
    "run_id": maybe(text),
    "kind": word(EventKind),
    "token": number,
    "reason": maybe(text),
    "detail": maybe(text),
    "queue": maybe(text),
}
_SCHEDULE: Final[Shape] = {
    "id": text,
    "name": text,
    "version": number,
    "plan": text,
    "created_at": moment,
    "updated_at": moment,
}
_SCHEDULE_STATE: Final[Shape] = {
    "id": text,
    "version": number,
    "enabled": flag,
    "next_slot": maybe(moment),
    "next_trigger_at": maybe(moment),
    "last_triggered_at": maybe(moment),
}
_SLOT: Final[Shape] = {
    "series": text,
    "slot_at": moment,
    "outcome": word(SlotOutcome),
    "planned": moment,
    "actual": moment,
    "schedule_id": maybe(text),
    "job_id": maybe(text),
    "reason": maybe(text),
}
_QUEUE: Final[Shape] = {
    "name": text,
    "ordering": word(Ordering),
    "gap": number,
    "concurrency": maybe(number),
    "paused_at": maybe(moment),
    "pause_reason": maybe(text),
    "paused_until": maybe(moment),
    "is_listed": flag,
    "reservation": maybe(number),
    "reserved_for": maybe(text),
    "plan": maybe(text),
}
_RESERVATION: Final[Shape] = {
    "id": text,
    "seq": number,
    "queue": text,
    "job_id": text,
    "caller": text,
    "request": text,
    "status": word(ReservationStatus),
    "reason": maybe(text),
    "reserved_at": moment,
    "expires_at": moment,
    "ended_at": maybe(moment),
    "silence_at": number,
    "silence_boot": text,
    "span": number,
}
_GROUP: Final[Shape] = {
    "id": text,
    "seq": number,
    "name": maybe(text),
    "mode": word(GroupMode),
    "on_failure": word(OnMemberFailure),
    "total": anything,
    "created_at": moment,
    "sealed_at": maybe(moment),
    "closing": maybe(word(ClosePolicy)),
    "reason": maybe(text),
    "entered": number,
    "present": number,
    "left": number,
    "is_swept": flag,
}
_WORKER: Final[Shape] = {
    "instance_id": text,
    "boot_id": text,
    "host": text,
    "pid": number,
    "queues": texts,
    "types": texts,
    "schedules": texts,
    "concurrency": number,
    "processes": number,
    "topology": word(Topology),
    "version": text,
    "app": text,
    "started_at": moment,
    "seen_at": moment,
    "stopped_at": maybe(moment),
    "alive_at": maybe(number),
    "alive_boot": maybe(text),
}
_DOCUMENT: Final[Shape] = {
    "kind": text,
    "key": text,
    "value": text,
    "version": number,
    "created_at": moment,
    "updated_at": moment,
}
_QUARANTINE: Final[Shape] = {"id": text, "sort": text, "why": text, "at": moment}

SHAPES: Final[dict[str, Shape]] = {
    key_layout.JOB: JOB,
    key_layout.SEQ: {"id": text, "slot": maybe(text)},
    key_layout.DUE: {"id": text, "queue": text},
    key_layout.DEADLINE: {"id": text},
    key_layout.ENDED: _ENDED,
    key_layout.RUN: _RUN,
    key_layout.ARTIFACTS: {"artifacts": texts},
    key_layout.EVENT: {"id": number},
    key_layout.STREAM: _EVENT,
    key_layout.ACTIVE: {"job_id": text, "root_id": text, "key": text},
    key_layout.SLOT: _SLOT,
    key_layout.SCHEDULE: _SCHEDULE,
    key_layout.SCHEDULE_NAME: {"id": text},
    key_layout.SCHEDULE_STATE: _SCHEDULE_STATE,
    key_layout.TRIGGER: {"id": text, "at": number},
    key_layout.ONCE: {"job_id": text},
    key_layout.QUEUE: _QUEUE,
    key_layout.QUEUE_NAME: {"name": text},
    key_layout.RESERVATION: _RESERVATION,
    key_layout.GROUP: _GROUP,
    key_layout.WORKER: _WORKER,
    key_layout.QUARANTINE: _QUARANTINE,
    "closing": {"seq": number},
    "filling": {"seq": number},
    "emptied": {"seq": number},
}
"""Shapes of the parts with a fixed name."""

FAMILIES: Final[dict[str, Shape]] = {
    key_layout.READY: _WAITING,
    key_layout.LATER: _WAITING,
    key_layout.OPEN: _OPEN,
    "job-id#": {"sort": text},
    "scheduled-job#": {"job_id": text, "purged": maybe(flag), "expires_at": maybe(number)},
    key_layout.BODY: {"text": text},
    "member#": _MEMBER,
    "group-id#": {"seq": number},
    "reservation-id#": {"seq": number},
    "record#": _DOCUMENT,
}
"""Shapes of the parts whose name goes on after `#`."""


def shape_of(part: str) -> Shape | None:
    """Return the shape of a part's records; None for parts that are not checked."""
    shape = SHAPES.get(part)
    if shape is not None or "#" not in part:
        return shape
    return FAMILIES.get(f"{part.partition('#')[0]}#")

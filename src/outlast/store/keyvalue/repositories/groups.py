"""Group records: codec, load and save, and the effects of members on their group."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from outlast.core.event import EventKind
from outlast.core.group import (
    MEMBER_FAILED,
    ClosePolicy,
    Group,
    GroupAction,
    GroupMode,
    OnMemberFailure,
    action_after_member,
    membership_error,
)
from outlast.core.job import NewJob
from outlast.core.limits import is_storable
from outlast.core.state import State
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import DamagedValue, Key, KeyRange, StoredItem, Value
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL = 1_000_000
CLOSING, FILLING, EMPTIED = "closing", "filling", "emptied"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A group with its counters.

    `entered` members were ever added, `present` exist, and `left` have not ended.
    """

    group: Group
    entered: int = 0
    present: int = 0
    left: int = 0
    is_swept: bool = False

    @property
    def is_over(self) -> bool:
        """True if the group is sealed or closing, and all members have ended."""
        is_complete = self.group.sealed_at is not None or self.group.closing is not None
        return is_complete and not self.left


async def load(unit: UnitOfWork, group_id: str) -> GroupRecord | None:
    """Return the record of a group; None if there is none, or it is damaged."""
    if not isinstance(group_id, str) or not is_storable(group_id):
        return None
    pointer = await unit.get(_pointer(group_id))
    if pointer is None or isinstance(pointer, DamagedValue):
        return None
    value = await unit.get(key_of(pointer["seq"]))
    return None if value is None or isinstance(value, DamagedValue) else from_value(value)


def save(unit: UnitOfWork, old: GroupRecord | None, new: GroupRecord | None) -> None:
    """Write the group with the index entries that changed; None as `new` deletes it."""
    before = {} if old is None else dict(_indexes(old))
    entries = {} if new is None else dict(_indexes(new))
    for key in before.keys() - entries.keys():
        unit.delete(key)
    for key in entries.keys() - before.keys():
        unit.put(key, entries[key])
    known = new or old
    assert known is not None
    if new is None:
        unit.delete(key_of(known.group.seq))
    else:
        unit.put(key_of(known.group.seq), to_value(new))


async def why_refused(unit: UnitOfWork, new: NewJob) -> str | None:
    """Return why the job cannot join its group; None if it can, or joins none."""
    if not new.member:
        return None
    record = await load(unit, new.group_id or "")
    if record is None:
        return membership_error(new, is_known=False, is_sealed=False, closing=None)
    is_sealed = record.group.sealed_at is not None
    return membership_error(new, is_known=True, is_sealed=is_sealed, closing=record.group.closing)


async def enter(unit: UnitOfWork, group_id: str) -> None:
    """Count a new member."""
    record = await load(unit, group_id)
    assert record is not None
    entered, present, left = record.entered + 1, record.present + 1, record.left + 1
    save(unit, record, replace(record, entered=entered, present=present, left=left))


async def advance(
    unit: UnitOfWork, was: JobRecord, after: JobRecord, now: datetime, *, has_successor: bool
) -> None:
    """Apply the end of a member to its group, in the unit of work that ends it."""
    if after.member is None:
        return
    record = await load(unit, after.member)
    if record is None:
        return
    counted = _counted(record, was, after, has_successor=has_successor)
    step = _step(counted, after, has_successor=has_successor)
    if step in (GroupAction.STOP, GroupAction.SKIP):
        counted = await _stop(unit, counted, after, ClosePolicy(step), now)
    elif step is GroupAction.NEXT and was.job.state is not State.BLOCKED and record.group.sealed_at:
        await _unblock_next(unit, after)
    if counted != record:
        save(unit, record, counted)


def _counted(
    record: GroupRecord, was: JobRecord, after: JobRecord, *, has_successor: bool
) -> GroupRecord:
    ended = int(after.job.is_final) - int(was.job.is_final)
    came = int(has_successor)
    return replace(record, left=record.left - ended + came, present=record.present + came)


def _step(record: GroupRecord, member: JobRecord, *, has_successor: bool) -> GroupAction:
    is_over = member.job.is_final and not member.is_followed and not has_successor
    if not is_over or record.group.closing is not None:
        return GroupAction.NOTHING
    return action_after_member(record.group.mode, record.group.on_failure, member.job.state)


async def _stop(
    unit: UnitOfWork, record: GroupRecord, member: JobRecord, closing: ClosePolicy, now: datetime
) -> GroupRecord:
    await job_repository.append_event(
        unit,
        EventKind.GROUP_STOPPED,
        at=now,
        job_id=member.job.id,
        token=member.job.token,
        reason=closing.value,
        detail=record.group.id,
    )
    return replace(record, group=replace(record.group, closing=closing, reason=MEMBER_FAILED))


async def _unblock_next(unit: UnitOfWork, member: JobRecord) -> None:
    entries = await members(unit, member.member or "")
    blocked = [e for e in entries if e["state"] == State.BLOCKED and e["seq"] > member.root_seq]
    for entry in blocked[:1]:
        await unblock(unit, entry["id"])


async def unblock(unit: UnitOfWork, job_id: str) -> bool:
    """Let a blocked member wait for its time only; whether it was blocked."""
    record = await job_repository.load(unit, job_id)
    if record is None or record.is_detached or record.job.state is not State.BLOCKED:
        return False
    job_repository.save(
        unit, record, replace(record, job=replace(record.job, state=State.SCHEDULED))
    )
    return True


async def members(unit: UnitOfWork, group_id: str) -> list[Value]:
    """Return the index entries of all members, in the order they were added."""
    found = await unit.range(KeyRange(key_layout.member_part(group_id)), limit=ALL)
    return [entry.value for entry in found]


def counted(record: GroupRecord, all_members: Sequence[Value]) -> Group:
    """Return the group with its members counted, a chain by its last job."""
    last = [each for each in all_members if not each["followed"]]
    counts = Counter(State.RUNNING if each["loose"] else State(each["state"]) for each in last)
    return replace(record.group, counts=dict(counts))


async def listed(unit: UnitOfWork, part: str, *, limit: int) -> list[GroupRecord]:
    """Return the groups that an index part names."""
    entries: list[StoredItem] = await unit.range(KeyRange(part), limit=limit)
    keys = [key_of(entry.value["seq"]) for entry in entries]
    await unit.fetch(keys)
    values = [await unit.get(key) for key in keys]
    sound = [each for each in values if each is not None and not isinstance(each, DamagedValue)]
    return [from_value(value) for value in sound]


def index_keys(record: GroupRecord) -> list[Key]:
    """Return the keys of the index entries that the group must have."""
    return [key for key, _ in _indexes(record)]


def _indexes(record: GroupRecord) -> Iterator[tuple[Key, Value]]:
    group, entry = record.group, {"seq": record.group.seq}
    yield _pointer(group.id), entry
    if group.sealed_at is None and group.closing is None:
        yield Key(FILLING, key_layout.deadline_sort(group.created_at, group.seq)), entry
    if group.closing is not None and not record.is_swept:
        yield Key(CLOSING, key_layout.number(group.seq)), entry
    if record.is_swept and group.sealed_at is None:
        yield Key(EMPTIED, key_layout.number(group.seq)), entry


def _pointer(group_id: str) -> Key:
    return Key(f"group-id#{key_layout.key_safe(group_id)}", key_layout.ONLY)


def key_of(seq: int) -> Key:
    """Return the key of the group with that number."""
    return Key(key_layout.GROUP, key_layout.number(seq))


def to_value(record: GroupRecord) -> Value:
    """Return the stored value of a group."""
    group = record.group
    value: dict[str, Any] = {
        "id": group.id,
        "seq": group.seq,
        "name": group.name,
        "mode": group.mode.value,
        "on_failure": group.on_failure.value,
        "total": group.total,
        "created_at": key_layout.time_key(group.created_at),
        "sealed_at": group.sealed_at and key_layout.time_key(group.sealed_at),
        "closing": group.closing and group.closing.value,
        "reason": group.reason,
        "entered": record.entered,
        "present": record.present,
        "left": record.left,
        "is_swept": record.is_swept,
    }
    return {name: each for name, each in value.items() if each is not None}


def from_value(value: Value) -> GroupRecord:
    """Return the group record of a stored value."""
    sealed_at, closing = value.get("sealed_at"), value.get("closing")
    group = Group(
        id=value["id"],
        seq=value["seq"],
        name=value.get("name"),
        mode=GroupMode(value["mode"]),
        on_failure=OnMemberFailure(value["on_failure"]),
        total=value["total"],
        created_at=key_layout.from_time_key(value["created_at"]),
        sealed_at=None if sealed_at is None else key_layout.from_time_key(sealed_at),
        closing=None if closing is None else ClosePolicy(closing),
        reason=value.get("reason"),
        counts={},
    )
    return GroupRecord(
        group=group,
        entered=value["entered"],
        present=value["present"],
        left=value["left"],
        is_swept=value["is_swept"],
    )

"""Groups: add, seal, stop, close and expire."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from outlast.core.group import (
    NEVER_COMPLETED,
    ClosePolicy,
    ClosingGroup,
    Group,
    GroupMode,
    NewGroup,
    check_group,
)
from outlast.core.job import Job
from outlast.core.limits import MAX_REASON, truncate
from outlast.core.state import FINAL, WAITING, State
from outlast.store.contract.notifications import Notification
from outlast.store.keyvalue import intents, key_layout
from outlast.store.keyvalue.batching import run_in_chunks
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, Value
from outlast.store.keyvalue.operations.base import KeyValueOperations, requires_open_store
from outlast.store.keyvalue.outcomes import require_all
from outlast.store.keyvalue.repositories import groups
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories.groups import CLOSING, FILLING, GroupRecord
from outlast.store.keyvalue.unit_of_work import PendingIntent, ReadConflict, UnitOfWork

SEAL = "seal"
"""Kind of the intent that unblocks the members of a sealed group."""

LOOKS: Final = 3
"""Reads of a group whose members change while they are counted."""

_WAITING = frozenset(state.value for state in WAITING)
_FINAL = frozenset(state.value for state in FINAL)


class KeyValueGroupOperations(KeyValueOperations):
    """Add, seal, stop, read, close and expire groups."""

    @requires_open_store
    async def add_group(self, context: StoreContext, group: NewGroup) -> bool:
        """Add a group; return False if its id is taken."""
        check_group(group)
        seq = await context.numbers(1)

        async def work(unit: UnitOfWork) -> bool:
            if await groups.load(unit, group.id) is not None:
                return False
            stored = Group(
                id=group.id,
                seq=seq,
                name=group.name,
                mode=group.mode,
                on_failure=group.on_failure,
                total=group.total,
                created_at=context.now(),
                sealed_at=None,
                closing=None,
                reason=None,
                counts={},
            )
            groups.save(unit, None, GroupRecord(group=stored))
            return True

        return await context.run_unit(work)

    @requires_open_store
    async def seal_group(self, context: StoreContext, group_id: str) -> bool:
        """Seal the group if all members are there; return False otherwise.

        One write decides. An intent then unblocks the members, and survives a crash.
        """

        async def work(unit: UnitOfWork) -> bool:
            record = await groups.load(unit, group_id)
            if record is None or record.group.sealed_at is not None:
                return record is not None
            if record.entered != record.group.total or record.group.closing is not None:
                return False
            groups.save(
                unit, record, replace(record, group=replace(record.group, sealed_at=context.now()))
            )
            if record.group.mode is GroupMode.PARALLEL:
                unit.put(_note(group_id), {"kind": SEAL, "group": group_id})
            else:
                await _unblock_first(unit, group_id)
            return True

        sealed = await context.run_unit(work)
        if sealed:
            await intents.unless_store_fails(finish_seal(context, group_id))
            context.notify(Notification(queues=frozenset({""})))
        return sealed

    @requires_open_store
    async def stop_group(
        self, context: StoreContext, group_id: str, *, reason: str | None, skip: bool = False
    ) -> bool:
        """Close the group, unless it is finished or closes already."""
        why = None if reason is None else truncate(reason, MAX_REASON)

        async def work(unit: UnitOfWork) -> bool:
            record = await groups.load(unit, group_id)
            if record is None or record.is_over or record.group.closing is not None:
                return False
            _close(unit, record, ClosePolicy.SKIP if skip else ClosePolicy.STOP, why)
            return True

        return await context.run_unit(work)

    async def group(self, group_id: str) -> Group | None:
        """Return a group with its members counted, or None."""
        context = self._context
        looks = iter(range(LOOKS))

        async def work(unit: UnitOfWork) -> Group | None:
            record = await groups.load(unit, group_id)
            found = [] if record is None else [record]
            shown = await _shown(unit, found, is_last=next(looks, None) is None)
            return shown[0] if shown else None

        return await context.run_unit(work)

    async def find_groups(self, *, limit: int, before: int | None = None) -> list[Group]:
        """Return groups, the newest first."""
        context = self._context
        span = KeyRange(key_layout.GROUP, end=None if before is None else key_layout.number(before))
        looks = iter(range(LOOKS))

        async def work(unit: UnitOfWork) -> list[Group]:
            entries = await unit.range(span, limit=limit, reverse=True)
            unit.remember(entries)
            found = [groups.from_value(entry.value) for entry in entries]
            return await _shown(unit, found, is_last=next(looks, None) is None)

        return await context.run_unit(work)

    async def groups_finished(self, group_ids: Sequence[str]) -> list[bool | None]:
        """Return for each group whether it is finished; None if it does not exist."""
        context = self._context
        unit = UnitOfWork(context.engine)
        found = [await groups.load(unit, group_id) for group_id in group_ids]
        return [None if record is None else record.is_over for record in found]

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        """Return groups that close, with their policy."""
        context = self._context
        found = await groups.listed(UnitOfWork(context.engine), CLOSING, limit=limit)
        return [ClosingGroup(g.group.id, g.group.closing) for g in found if g.group.closing]

    async def remaining_members(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        """Return members of a closing group that wait, or run without a cancel request."""
        context = self._context

        async def work(unit: UnitOfWork) -> list[Job]:
            record = await groups.load(unit, group_id)
            if record is None or record.group.closing is None:
                return []
            stops = record.group.closing is ClosePolicy.STOP
            wanted = [
                member["id"]
                for member in await groups.members(unit, group_id)
                if member["seq"] > after
                and not member["loose"]
                and (member["state"] in _WAITING or (stops and _runs_unasked(member)))
            ]
            found = await job_repository.load_many(unit, wanted[:limit])
            return await job_repository.whole_jobs(unit, found)

        return await context.run_unit(work)

    @requires_open_store
    async def mark_groups_closed(self, context: StoreContext, *, limit: int) -> int:
        """Mark closing groups that are finished; return how many."""
        swept = 0
        for found in await groups.listed(UnitOfWork(context.engine), CLOSING, limit=groups.ALL):
            if swept < limit and found.is_over:
                swept += await context.run_unit(partial(_sweep, group_id=found.group.id))
        return swept

    @requires_open_store
    async def expire_groups(
        self, context: StoreContext, *, older_than: timedelta, limit: int
    ) -> int:
        """Stop groups that were not sealed within `older_than`; return how many."""
        before = context.now() - older_than
        expired = 0
        for found in await groups.listed(UnitOfWork(context.engine), FILLING, limit=limit):
            if found.group.created_at < before:
                expired += await context.run_unit(partial(_expire, group_id=found.group.id))
        return expired


async def finish_seal(context: StoreContext, group_id: str) -> None:
    """Unblock the members that are still blocked, and delete the intent; idempotent."""
    context = context.without_gate()
    intent = _note(group_id)
    [entry] = await context.engine.get([intent])
    if entry is None:
        return
    members = await groups.members(UnitOfWork(context.engine), group_id)
    blocked = [member["id"] for member in members if member["state"] == State.BLOCKED]
    outcomes = await run_in_chunks(
        context, blocked, lambda ids: context.run_unit(partial(_unblock, ids=ids)), records=5
    )
    require_all(outcomes)
    await context.engine.transact({intent: entry.version}, [intents.done(intent)])


async def _unblock(unit: UnitOfWork, *, ids: Sequence[str]) -> list[bool]:
    await job_repository.load_many(unit, ids)  # in one request
    return [await groups.unblock(unit, job_id) for job_id in ids]


async def _shown(unit: UnitOfWork, found: Sequence[GroupRecord], *, is_last: bool) -> list[Group]:
    """Return each group with its members counted; raise ReadConflict if they changed meanwhile.

    The last attempt reads the groups again after their members instead: no group then counts as
    going on although it was stopped before its last member ended.
    """
    members = [await groups.members(unit, record.group.id) for record in found]
    for record, own in zip(found, members, strict=True):
        await _require_unblocked(unit, record, own)
    if not is_last and not all(map(_is_whole, found, members)):
        for left in await intents.pending(unit.engine):
            raise PendingIntent(left.key)
        raise ReadConflict
    keys = [groups.key_of(record.group.seq) for record in found]
    if not found or await unit.is_unchanged(keys):
        return [groups.counted(*pair) for pair in zip(found, members, strict=True)]
    if not is_last:
        raise ReadConflict
    pairs = zip(await unit.engine.get(keys), members, strict=True)
    sound = [(e.value, own) for e, own in pairs if e is not None and e.damage is None]
    return [groups.counted(groups.from_value(value), own) for value, own in sound]


def _is_whole(record: GroupRecord, members: Sequence[Value]) -> bool:
    """Return True if these are all members that the group counts."""
    left = sum(member["state"] not in _FINAL for member in members)
    return (len(members), left) == (record.present, record.left)


async def _require_unblocked(
    unit: UnitOfWork, record: GroupRecord, members: Sequence[Value]
) -> None:
    """Raise PendingIntent if the group is being sealed."""
    is_begun = record.group.sealed_at is not None and record.group.mode is GroupMode.PARALLEL
    if is_begun and any(member["state"] == State.BLOCKED for member in members):
        intent = _note(record.group.id)
        if await unit.get(intent) is not None:
            raise PendingIntent(intent)


def _runs_unasked(member: Value) -> bool:
    return bool(member["state"] == State.RUNNING and not member["asked"])


async def _sweep(unit: UnitOfWork, group_id: str) -> bool:
    record = await groups.load(unit, group_id)
    if record is None or record.is_swept or not record.is_over:
        return False
    groups.save(unit, record, replace(record, is_swept=True))
    return True


async def _expire(unit: UnitOfWork, group_id: str) -> bool:
    record = await groups.load(unit, group_id)
    if record is None or record.group.sealed_at is not None or record.group.closing is not None:
        return False
    _close(unit, record, ClosePolicy.STOP, NEVER_COMPLETED)
    return True


async def _unblock_first(unit: UnitOfWork, group_id: str) -> None:
    for member in await groups.members(unit, group_id):
        if member["state"] == State.BLOCKED:
            await groups.unblock(unit, member["id"])
            return


def _close(unit: UnitOfWork, record: GroupRecord, closing: ClosePolicy, reason: str | None) -> None:
    closed = replace(record.group, closing=closing, reason=reason)
    groups.save(unit, record, replace(record, group=closed))


def _note(group_id: str) -> Key:
    return Key(key_layout.PENDING, f"{SEAL}#{key_layout.key_safe(group_id)}")

"""Groups: add, seal and close them, and advance them when members end."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

from outlast.clock import to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.group import (
    MEMBER_FAILED,
    NEVER_COMPLETED,
    ClosePolicy,
    ClosingGroup,
    Group,
    GroupAction,
    GroupMode,
    NewGroup,
    OnMemberFailure,
    action_after_member,
    check_group,
    membership_error,
)
from outlast.core.job import Job, NewJob
from outlast.core.limits import MAX_REASON, truncate
from outlast.core.state import State
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import require_storable
from outlast.store.sqlite.operations.base import SqliteOperations, require_open_store
from outlast.store.sqlite.writer import WriteTransaction

_NO_LIMIT: Final = -1


class SqliteGroupOperations(SqliteOperations):
    """Groups of jobs."""

    async def add_group(self, group: NewGroup) -> bool:
        """Store a group without members; False if its id is known."""
        added: bool = (await self._writer.submit(add_group, [check_group(group)]))[0]
        return added

    async def seal_group(self, group_id: str) -> bool:
        """Unblock the members of a complete group; False if it is not complete."""
        sealed: bool = (await self._writer.submit(seal_group, [group_id]))[0]
        return sealed

    async def stop_group(self, group_id: str, *, reason: str | None, skip: bool = False) -> bool:
        """Close a group; True if this call closed it."""
        policy = ClosePolicy.SKIP if skip else ClosePolicy.STOP
        text = None if reason is None else truncate(reason, MAX_REASON)
        stopped: bool = (await self._writer.submit(stop_group, [(group_id, policy, text)]))[0]
        return stopped

    async def group(self, group_id: str) -> Group | None:
        """Return the group with the counts of its members, or None."""
        found = await self._reader.rows("groups.get", id=group_id)
        return job_rows.group(found[0]) if found else None

    async def find_groups(self, *, limit: int, before: int | None = None) -> list[Group]:
        """Return groups, the newest `seq` first."""
        found = await self._reader.rows("groups.find", limit=limit, before=before)
        return [job_rows.group(row) for row in found]

    async def groups_finished(self, group_ids: Sequence[str]) -> list[bool | None]:
        """Return whether each group is over; None for an unknown id."""
        found = await self._reader.rows("groups.finished", ids=list(group_ids))
        finished = {group_id: bool(is_over) for group_id, is_over in found}
        return [finished.get(group_id) for group_id in group_ids]

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        """Return groups that close and are not marked closed, the earliest first."""
        found = await self._reader.rows("groups.closing", limit=limit)
        return [ClosingGroup(group_id, ClosePolicy(policy)) for group_id, policy in found]

    async def remaining_members(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        """Return members of a closing group that are still to be ended."""
        return await self._jobs("groups.remaining", id=group_id, after=after, limit=limit)

    async def mark_groups_closed(self, *, limit: int) -> int:
        """Mark closing groups whose members have all ended; return how many.

        A reader checks first, so that the usual case takes no write lock.
        """
        if not await self._reader.rows("groups.closable"):
            return 0
        marked: int = (await self._writer.submit(mark_groups_closed, [limit]))[0]
        return marked

    async def expire_groups(self, *, older_than: timedelta, limit: int) -> int:
        """Stop groups that were never sealed in time; return how many."""
        before = to_micros(self._clock.now()) - older_than // MICROSECOND
        if not await self._reader.rows("groups.expired", before=before):
            return 0
        expired: int = (await self._writer.submit(expire_groups, [(older_than, limit)]))[0]
        return expired


@require_open_store
def add_group(tx: WriteTransaction, groups: Sequence[NewGroup]) -> list[bool]:
    """Insert each group; False for an id that is known."""
    return [_add_group_row(tx, group) for group in groups]


@require_open_store
def seal_group(tx: WriteTransaction, group_ids: Sequence[str]) -> list[bool]:
    """Seal each complete group and unblock its members."""
    return [_seal_one(tx, group_id) for group_id in group_ids]


@require_open_store
def stop_group(
    tx: WriteTransaction, stops: Sequence[tuple[str, ClosePolicy, str | None]]
) -> list[bool]:
    """Close each group that is neither closing nor over."""
    return [
        tx.run("groups.stop", id=group_id, closing=policy, reason=reason).rowcount > 0
        for group_id, policy, reason in stops
    ]


@require_open_store
def mark_groups_closed(tx: WriteTransaction, limits: Sequence[int]) -> list[int]:
    """Mark closing groups without live members as closed."""
    return [tx.run("groups.mark_closed", limit=limit).rowcount for limit in limits]


@require_open_store
def expire_groups(tx: WriteTransaction, items: Sequence[tuple[timedelta, int]]) -> list[int]:
    """Stop unsealed groups older than a span."""
    return [
        tx.run(
            "groups.expire",
            before=tx.now - span // MICROSECOND,
            limit=limit,
            reason=NEVER_COMPLETED,
        ).rowcount
        for span, limit in items
    ]


def group_of(tx: WriteTransaction, job: NewJob) -> int | None:
    """Return the row of the group that a new job joins, None if it joins none.

    Raises ValueError if the group does not accept members.
    """
    if not job.member:
        return None
    seq: int | None
    seq, is_sealed, closing, _ = _membership_state(tx, job.group_id)
    refusal = membership_error(job, is_known=seq is not None, is_sealed=is_sealed, closing=closing)
    if refusal is not None:
        raise ValueError(refusal)
    return seq


def advance_groups(tx: WriteTransaction, ends: Iterable[tuple[Any, ...]]) -> None:
    """Close groups or unblock their next members, as the ends of members require."""
    for job, token, root, group, mode, on_failure, end, was_blocked in ends:
        action = action_after_member(GroupMode(mode), OnMemberFailure(on_failure), State(end))
        if action in (GroupAction.STOP, GroupAction.SKIP):
            closed = tx.run("groups.close", group_seq=group, closing=action, reason=MEMBER_FAILED)
            if closed.rowcount > 0:
                tx.run("groups.record_stop", job=job, token=token, group_seq=group, now=tx.now)
        elif action is GroupAction.NEXT and not was_blocked:  # a blocked member had no turn to pass
            tx.run("groups.unblock_next", group_seq=group, root=root)
            tx.notify_queues.add("")


def _add_group_row(tx: WriteTransaction, group: NewGroup) -> bool:
    values = {
        "id": group.id,
        "name": group.name,
        "mode": group.mode,
        "on_failure": group.on_failure,
        "total": group.total,
    }
    require_storable(values.values())
    return tx.run("groups.add", now=tx.now, **values).rowcount > 0


def _seal_one(tx: WriteTransaction, group_id: str) -> bool:
    seq, was_sealed, _, mode = _membership_state(tx, group_id)
    if was_sealed or seq is None:
        return bool(was_sealed)
    if tx.run("groups.seal", id=group_id, now=tx.now).rowcount <= 0:
        return False
    limit = _NO_LIMIT if mode == GroupMode.PARALLEL else 1
    if tx.run("groups.unblock", group_seq=seq, limit=limit).rowcount > 0:
        tx.notify_queues.add("")  # members may be of several queues
    return True


def _membership_state(tx: WriteTransaction, group_id: str | None) -> tuple[Any, ...]:
    found: tuple[Any, ...] | None = tx.run("groups.membership", id=group_id).fetchone()
    return (None, False, None, None) if found is None else found

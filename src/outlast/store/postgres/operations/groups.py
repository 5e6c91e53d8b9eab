"""Groups: create, seal, stop, finish, and the effects of a member's end."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

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
from outlast.errors import InvalidGroup
from outlast.store.postgres.operations.base import PostgresOperations, require_open_store
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork, Row
from outlast.store.postgres.uuids import is_uuid
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import require_storable

_BEFORE_FIRST_SEQ: Final = 0
_NO_LIMIT: Final = 2**31
_UNKNOWN_GROUP: Final = (None, False, None, None)
"""The columns of `groups.lock` for a group that does not exist."""


class PostgresGroupOperations(PostgresOperations):
    """Create, seal, stop, read and close groups."""

    async def add_group(self, group: NewGroup) -> bool:
        """Create a group; return False if its id exists."""
        new = check_group(group)
        if not is_uuid(new.id):
            raise InvalidGroup(f"the id of a group is {new.id!r}; use a UUID in lower case")
        return await self._pool.transact(require_open_store(lambda work: _add_group(work, new)))

    async def seal_group(self, group_id: str) -> bool:
        """Seal a group with all its members and unblock them; return whether it is sealed."""
        if not is_uuid(group_id):
            return False
        return await self._pool.transact(
            require_open_store(lambda work: _seal_group(work, group_id))
        )

    async def stop_group(self, group_id: str, *, reason: str | None, skip: bool = False) -> bool:
        """Start closing a group; return False if it is closing or finished."""
        if not is_uuid(group_id):
            return False
        closing = ClosePolicy.SKIP if skip else ClosePolicy.STOP
        why = None if reason is None else truncate(reason, MAX_REASON)
        return await self._pool.transact(
            require_open_store(lambda work: _stop_group(work, group_id, closing, why))
        )

    async def group(self, group_id: str) -> Group | None:
        """Return a group with the states of its members, or None."""
        if not is_uuid(group_id):
            return None
        found = await self._pool.rows("groups.get", id=group_id)
        return job_rows.group(tuple(found[0])) if found else None

    async def find_groups(self, *, limit: int, before: int | None = None) -> list[Group]:
        """Return the newest groups, before the `seq` of the last page."""
        found = await self._pool.rows("groups.find", limit=limit, before=before)
        return [job_rows.group(tuple(row)) for row in found]

    async def groups_finished(self, group_ids: Sequence[str]) -> list[bool | None]:
        """Return for each group whether it is finished; None if it does not exist."""
        known = [group_id for group_id in group_ids if is_uuid(group_id)]
        found = await self._pool.rows("groups.finished", ids=known) if known else []
        finished = {group_id: bool(is_finished) for group_id, is_finished in found}
        return [finished.get(group_id) for group_id in group_ids]

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        """Return groups that are closing, oldest first."""
        found = await self._pool.rows("groups.closing", limit=limit)
        return [ClosingGroup(group_id, ClosePolicy(closing)) for group_id, closing in found]

    async def remaining_members(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        """Return members of a closing group that are still to be ended, by `seq`."""
        if not is_uuid(group_id):
            return []
        return await self._jobs("groups.remaining_members", id=group_id, after=after, limit=limit)

    async def mark_groups_closed(self, *, limit: int) -> int:
        """Mark closing groups without live members as closed; return their number."""
        # A read first: mostly there is none.
        if not await self._pool.rows("groups.any_to_mark"):
            return 0
        return await self._pool.transact(
            require_open_store(lambda work: work.run("groups.mark_closed", limit=limit))
        )

    async def expire_groups(self, *, older_than: timedelta, limit: int) -> int:
        """Stop groups that were not sealed in time; return their number."""
        span = older_than // MICROSECOND
        if not await self._pool.rows("groups.any_expired", now=self._now, span=span):
            return 0
        return await self._pool.transact(
            require_open_store(lambda work: _expire_groups(work, span, limit))
        )


async def lock_groups(work: PostgresUnitOfWork, group_ids: Iterable[str]) -> list[Row]:
    """Lock groups until the commit; return id, is sealed, closing and mode of each.

    No member is added or ended meanwhile. Locked after queues and before jobs.
    """
    wanted = sorted(set(group_ids))
    return await work.rows("groups.lock", ids=wanted) if wanted else []


async def require_membership(work: PostgresUnitOfWork, job: NewJob) -> None:
    """Raise ValueError unless the job may become a member of its group.

    The shared row lock keeps the group from being sealed or stopped before the commit.
    """
    found: list[Row] = []
    if is_uuid(job.group_id):
        found = await work.rows("groups.lock_shared", id=job.group_id)
    known, is_sealed, closing, _ = found[0] if found else _UNKNOWN_GROUP
    why = membership_error(job, is_known=known is not None, is_sealed=is_sealed, closing=closing)
    if why is not None:
        raise ValueError(why)


async def advance(work: PostgresUnitOfWork, ends: Iterable[Row]) -> None:
    """Apply the ends of members to their groups, which are locked, in order.

    Each end: job, token, seq of its root, group, mode, on_failure, state, whether it was blocked.
    """
    for job, token, root, group, mode, on_failure, end, was_blocked in ends:
        action = action_after_member(GroupMode(mode), OnMemberFailure(on_failure), State(end))
        if action in (GroupAction.STOP, GroupAction.SKIP):
            values = {"group_id": group, "closing": action, "reason": MEMBER_FAILED}
            if await work.run("groups.close", **values):
                stopped = {"job": job, "token": token, "group_id": group}
                await work.run("groups.record_stop", now=work.now, **stopped)
        elif action is GroupAction.NEXT and not was_blocked:
            # A blocked member was not running, so its end unblocks no other.
            await _unblock_next(work, group, root)


async def _add_group(work: PostgresUnitOfWork, group: NewGroup) -> bool:
    values = {
        "id": group.id,
        "name": group.name,
        "mode": group.mode,
        "on_failure": group.on_failure,
        "total": group.total,
    }
    require_storable(values.values())
    return await work.run("groups.add", now=work.now, **values) > 0


async def _seal_group(work: PostgresUnitOfWork, group_id: str) -> bool:
    # Transactions that add members hold a shared lock: they have committed when this returns.
    [found, *_] = [*await lock_groups(work, [group_id]), _UNKNOWN_GROUP]
    known, was_sealed, _, mode = found
    if was_sealed or known is None:
        return bool(was_sealed)
    if not await work.run("groups.seal", id=group_id, now=work.now):
        return False
    limit = _NO_LIMIT if mode == GroupMode.PARALLEL else 1
    await _unblock(work, group_id, _BEFORE_FIRST_SEQ, limit)
    return True


async def _stop_group(
    work: PostgresUnitOfWork, group_id: str, closing: ClosePolicy, reason: str | None
) -> bool:
    await lock_groups(work, [group_id])
    return await work.run("groups.stop", id=group_id, closing=closing, reason=reason) > 0


async def _expire_groups(work: PostgresUnitOfWork, span: int, limit: int) -> int:
    before = work.now - span
    return await work.run("groups.expire", before=before, limit=limit, reason=NEVER_COMPLETED)


async def _unblock_next(work: PostgresUnitOfWork, group_id: str, root: int) -> None:
    for _, is_sealed, closing, _ in await lock_groups(work, [group_id]):
        if is_sealed and closing is None:
            await _unblock(work, group_id, root, 1)


async def _unblock(work: PostgresUnitOfWork, group_id: str, after: int, limit: int) -> None:
    found = await work.rows("groups.unblock", group_id=group_id, after=after, limit=limit)
    work.queues.update(queue for (queue,) in found)

"""Groups: storing them, letting their members run, closing them."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from outlast.core.duration import MICROSECOND
from outlast.core.group import (
    MEMBER_FAILED,
    NEVER_COMPLETED,
    ClosePolicy,
    GroupAction,
    GroupMode,
    NewGroup,
    OnMemberFailure,
    action_after_member,
    membership_error,
)
from outlast.core.job import NewJob
from outlast.core.state import State
from outlast.store.postgres.unit_of_work import Row, UnitOfWork
from outlast.store.postgres.uuids import is_uuid
from outlast.store.rows.jobs import require_storable

_FIRST: Final = 0
_ALL: Final = 2**31
_STRANGER: Final = (None, False, None, None)


async def lock_groups(work: UnitOfWork, group_ids: Iterable[str]) -> list[Row]:
    """Keep members from coming and ending until the commit: id, is sealed, closing, mode of each.

    After the queues' locks and before any job's.
    """
    wanted = sorted(set(group_ids))
    return await work.rows("groups.lock", ids=wanted) if wanted else []


async def add_group(work: UnitOfWork, group: NewGroup) -> bool:
    values = {
        "id": group.id,
        "name": group.name,
        "mode": group.mode,
        "on_failure": group.on_failure,
        "total": group.total,
    }
    require_storable(values.values())
    return await work.run("groups.add", now=work.now, **values) > 0


async def seal_group(work: UnitOfWork, group_id: str) -> bool:
    # Whoever is bringing members has finished when the lock is ours.
    [found, *_] = [*await lock_groups(work, [group_id]), _STRANGER]
    known, was_sealed, _, mode = found
    if was_sealed or known is None:
        return bool(was_sealed)
    if not await work.run("groups.seal", id=group_id, now=work.now):
        return False
    await _unblock(work, group_id, _FIRST, _ALL if mode == GroupMode.PARALLEL else 1)
    return True


async def stop_group(
    work: UnitOfWork, group_id: str, closing: ClosePolicy, reason: str | None
) -> bool:
    await lock_groups(work, [group_id])
    return await work.run("groups.stop", id=group_id, closing=closing, reason=reason) > 0


async def sweep_groups(work: UnitOfWork, limit: int) -> int:
    return await work.run("groups.mark_closed", limit=limit)


async def expire_groups(work: UnitOfWork, older_than: timedelta, limit: int) -> int:
    before = work.now - older_than // MICROSECOND
    return await work.run("groups.expire", before=before, limit=limit, reason=NEVER_COMPLETED)


async def group_of(work: UnitOfWork, job: NewJob) -> str | None:
    """The id of the group that a new job becomes a member of; ValueError if it cannot.

    The group can neither be sealed nor be stopped before this transaction ends.
    """
    if not job.member:
        return None
    found: list[Row] = []
    if is_uuid(job.group_id):
        found = await work.rows("groups.lock_shared", id=job.group_id)
    known, is_sealed, closing, _ = found[0] if found else _STRANGER
    why = membership_error(job, is_known=known is not None, is_sealed=is_sealed, closing=closing)
    if why is not None:
        raise ValueError(why)
    return job.group_id


async def advance(work: UnitOfWork, ends: Iterable[Row]) -> None:
    """What the ends of members mean for their groups, whose locks are held, one after the other.

    Each one: job, token, the seq of its root, group, mode, on_failure, end, whether it was blocked.
    """
    for job, token, root, group, mode, on_failure, end, was_blocked in ends:
        step = action_after_member(GroupMode(mode), OnMemberFailure(on_failure), State(end))
        if step in (GroupAction.STOP, GroupAction.SKIP):
            values = {"group_id": group, "closing": step, "reason": MEMBER_FAILED}
            if await work.run("groups.close", **values):
                await work.run(
                    "groups.record_stop", job=job, token=token, group_id=group, now=work.now
                )
        elif (
            step is GroupAction.NEXT and not was_blocked
        ):  # who ends before its turn gives none away
            await _next(work, group, root)


async def _next(work: UnitOfWork, group_id: str, root: int) -> None:
    for _, is_sealed, closing, _ in await lock_groups(work, [group_id]):
        if is_sealed and closing is None:
            await _unblock(work, group_id, root, 1)


async def _unblock(work: UnitOfWork, group_id: str, root: int, limit: int) -> None:
    found = await work.rows("groups.unblock", group_id=group_id, after=root, limit=limit)
    work.queues.update(queue for (queue,) in found)

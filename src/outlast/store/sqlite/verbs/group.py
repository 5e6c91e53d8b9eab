"""Groups: storing them, letting their members run, closing them."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

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
from outlast.store.rows.jobs import require_storable
from outlast.store.sqlite.verbs.footing import require_open_store
from outlast.store.sqlite.writer import WriteTransaction

_ALL: Final = -1


@require_open_store
def add_group(work: WriteTransaction, groups: Sequence[NewGroup]) -> list[bool]:
    return [_add_group(work, group) for group in groups]


@require_open_store
def seal_group(work: WriteTransaction, group_ids: Sequence[str]) -> list[bool]:
    return [_seal(work, group_id) for group_id in group_ids]


@require_open_store
def stop_group(
    work: WriteTransaction, asked: Sequence[tuple[str, ClosePolicy, str | None]]
) -> list[bool]:
    return [
        work.run("groups.stop", id=group_id, closing=closing, reason=reason).rowcount > 0
        for group_id, closing, reason in asked
    ]


@require_open_store
def sweep_groups(work: WriteTransaction, limits: Sequence[int]) -> list[int]:
    return [work.run("groups.sweep", limit=limit).rowcount for limit in limits]


@require_open_store
def expire_groups(work: WriteTransaction, asked: Sequence[tuple[timedelta, int]]) -> list[int]:
    return [
        work.run(
            "groups.expire",
            before=work.now - span // MICROSECOND,
            limit=limit,
            reason=NEVER_COMPLETED,
        ).rowcount
        for span, limit in asked
    ]


def group_of(work: WriteTransaction, job: NewJob) -> int | None:
    """The row of the group that a new job becomes a member of; ValueError if it cannot."""
    if not job.member:
        return None
    seq: int | None
    seq, is_sealed, closing, _ = _membership_state(work, job.group_id)
    why = membership_error(job, is_known=seq is not None, is_sealed=is_sealed, closing=closing)
    if why is not None:
        raise ValueError(why)
    return seq


def advance(work: WriteTransaction, ends: Iterable[tuple[Any, ...]]) -> None:
    """What the ends of members mean for their groups, one after the other."""
    for job, token, root, group, mode, on_failure, end, was_blocked in ends:
        step = action_after_member(GroupMode(mode), OnMemberFailure(on_failure), State(end))
        if step in (GroupAction.STOP, GroupAction.SKIP):
            closed = work.run("groups.close", group_seq=group, closing=step, reason=MEMBER_FAILED)
            if closed.rowcount > 0:
                work.run("groups.tell", job=job, token=token, group_seq=group, now=work.now)
        elif (
            step is GroupAction.NEXT and not was_blocked
        ):  # who ends before its turn gives none away
            work.run("groups.next", group_seq=group, root=root)
            work.queues.add("")


def _add_group(work: WriteTransaction, group: NewGroup) -> bool:
    values = {
        "id": group.id,
        "name": group.name,
        "mode": group.mode,
        "on_failure": group.on_failure,
        "total": group.total,
    }
    require_storable(values.values())
    return work.run("groups.add", now=work.now, **values).rowcount > 0


def _seal(work: WriteTransaction, group_id: str) -> bool:
    seq, was_sealed, _, mode = _membership_state(work, group_id)
    if was_sealed or seq is None:
        return bool(was_sealed)
    if work.run("groups.seal", id=group_id, now=work.now).rowcount <= 0:
        return False
    limit = _ALL if mode == GroupMode.PARALLEL else 1
    if work.run("groups.unblock", group_seq=seq, limit=limit).rowcount > 0:
        work.queues.add("")  # members may be of several queues
    return True


def _membership_state(work: WriteTransaction, group_id: str | None) -> tuple[Any, ...]:
    found: tuple[Any, ...] | None = work.run("groups.door", id=group_id).fetchone()
    return (None, False, None, None) if found is None else found

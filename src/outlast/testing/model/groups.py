"""How the model store keeps groups and moves them on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from outlast.core.decide import Change
from outlast.core.event import EventKind
from outlast.core.group import (
    MEMBER_FAILED,
    NEVER_COMPLETED,
    ClosePolicy,
    ClosingGroup,
    Group,
    GroupAction,
    GroupMode,
    NewGroup,
    action_after_member,
    membership_error,
)
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.limits import MAX_REASON, truncate
from outlast.core.state import FINAL, WAITING, State
from outlast.testing.model.tables import GroupRow, Tables


def add_group(tables: Tables, new: NewGroup, now: datetime) -> bool:
    """Keep a new group; False if its id is taken."""
    if new.id in tables.groups:
        return False
    group = Group(
        id=new.id,
        seq=next(tables.seqs),
        name=new.name,
        mode=new.mode,
        on_failure=new.on_failure,
        total=new.total,
        created_at=now,
        sealed_at=None,
        closing=None,
        reason=None,
        counts={},
    )
    tables.groups[new.id] = GroupRow(group)
    return True


def why_refused(tables: Tables, new: NewJob) -> str | None:
    """Why a job cannot become the member it wants to be; None if it can, or wants nothing."""
    if not new.member:
        return None
    kept = tables.groups.get(new.group_id or "")
    if kept is None:
        return membership_error(new, is_known=False, is_sealed=False, closing=None)
    is_sealed = kept.group.sealed_at is not None
    return membership_error(new, is_known=True, is_sealed=is_sealed, closing=kept.group.closing)


def seal_group(tables: Tables, group_id: str, now: datetime) -> bool:
    """Let the members run if all are there."""
    kept = tables.groups.get(group_id)
    if kept is None or kept.group.sealed_at is not None:
        return kept is not None
    roots = [job for job in _members(tables, group_id) if job.root_id == job.id]
    if len(roots) != kept.group.total or kept.group.closing is not None:
        return False
    tables.groups[group_id] = replace(kept, group=replace(kept.group, sealed_at=now))
    blocked = _blocked(tables, group_id)
    first = None if kept.group.mode is GroupMode.PARALLEL else 1
    for job in blocked[:first]:
        tables.jobs[job.id] = replace(job, state=State.SCHEDULED)
    return True


def stop_group(tables: Tables, group_id: str, reason: str | None, *, skip: bool) -> bool:
    """Close it, unless it is over or closes already."""
    if over(tables, group_id) is not False or tables.groups[group_id].group.closing is not None:
        return False
    why = None if reason is None else truncate(reason, MAX_REASON)
    _close(tables, group_id, ClosePolicy.SKIP if skip else ClosePolicy.STOP, why)
    return True


def advance(tables: Tables, was: Job, change: Change, now: datetime) -> None:
    """What a change just written means for the group of the job, which stood as `was`."""
    job = tables.jobs[was.id]
    group_id = tables.members.get(job.id)
    if group_id is None or job.state not in FINAL or _is_followed(tables, job):
        return
    if change.successor is not None:
        return
    group = tables.groups[group_id].group
    step = action_after_member(group.mode, group.on_failure, job.state)
    if group.closing is not None:
        return
    if step in (GroupAction.STOP, GroupAction.SKIP):
        _close(tables, group_id, ClosePolicy(step), MEMBER_FAILED)
        told = replace(change, token=job.token)
        kind = EventKind.GROUP_STOPPED
        tables.document(told, kind, at=now, run_id=None, reason=step.value, detail=group_id)
    elif (
        step is GroupAction.NEXT and was.state is not State.BLOCKED and group.sealed_at is not None
    ):
        root = tables.jobs[job.root_id].seq
        for following in [b for b in _blocked(tables, group_id) if b.seq > root][:1]:
            tables.jobs[following.id] = replace(following, state=State.SCHEDULED)


def record(tables: Tables, group_id: str) -> Group | None:
    """The group with its members counted."""
    kept = tables.groups.get(group_id)
    if kept is None:
        return None
    last = [job for job in _members(tables, group_id) if not _is_followed(tables, job)]
    return replace(kept.group, counts=dict(Counter(job.state for job in last)))


def found(tables: Tables, limit: int, before: int | None) -> list[Group]:
    """Groups, the newest first."""
    newest = sorted((kept.group for kept in tables.groups.values()), key=lambda g: -g.seq)
    page = [group.id for group in newest if before is None or group.seq < before][:limit]
    return [group for group_id in page if (group := record(tables, group_id))]


def over(tables: Tables, group_id: str) -> bool | None:
    """Whether nothing of it waits or runs, or ever will; None if there is none."""
    kept = tables.groups.get(group_id)
    if kept is None:
        return None
    is_complete = kept.group.sealed_at is not None or kept.group.closing is not None
    return is_complete and all(job.state in FINAL for job in _members(tables, group_id))


def closing_groups(tables: Tables, limit: int) -> list[ClosingGroup]:
    """Those that close and were not swept, the earliest first."""
    unswept = sorted(
        (kept.group for kept in tables.groups.values() if not kept.swept), key=lambda g: g.seq
    )
    return [ClosingGroup(g.id, g.closing) for g in unswept if g.closing is not None][:limit]


def left_over(tables: Tables, group_id: str) -> list[Job]:
    """Members of a closing group that still wait, or run and were not asked to stop."""
    closing = tables.groups[group_id].group.closing if group_id in tables.groups else None
    if closing is None:
        return []
    return [
        job
        for job in _members(tables, group_id)
        if job.state in WAITING
        or (closing is ClosePolicy.STOP and tables.is_open(job) and not job.cancel_requested)
    ]


def sweep(tables: Tables, limit: int) -> int:
    """Mark those that close and are over."""
    ended = [g.id for g in closing_groups(tables, len(tables.groups)) if over(tables, g.id)]
    for group_id in ended[:limit]:
        tables.groups[group_id] = replace(tables.groups[group_id], swept=True)
    return len(ended[:limit])


def expire(tables: Tables, older_than: timedelta, limit: int, now: datetime) -> int:
    """Stop those that nobody completed."""
    groups = sorted((kept.group for kept in tables.groups.values()), key=lambda g: g.created_at)
    old = [
        g.id
        for g in groups
        if g.sealed_at is None and g.closing is None and g.created_at < now - older_than
    ]
    for group_id in old[:limit]:
        _close(tables, group_id, ClosePolicy.STOP, NEVER_COMPLETED)
    return len(old[:limit])


def is_kept(tables: Tables, job: Job) -> bool:
    """Whether a chain must stay because its group is not over."""
    group_id = tables.members.get(job.root_id)
    return group_id is not None and not over(tables, group_id)


def forget(tables: Tables, gone: Sequence[JobId], before: datetime) -> None:
    """Drop these jobs from their groups, and the groups that have nobody left."""
    left = {tables.members.pop(job_id) for job_id in gone if job_id in tables.members}
    occupied = set(tables.members.values())
    for group_id, kept in list(tables.groups.items()):
        group = kept.group
        was_filling = kept.swept and group.sealed_at is None and group.created_at < before
        if group_id not in occupied and (group_id in left or was_filling):
            del tables.groups[group_id]


def _close(tables: Tables, group_id: str, closing: ClosePolicy, reason: str | None) -> None:
    kept = tables.groups[group_id]
    tables.groups[group_id] = replace(
        kept, group=replace(kept.group, closing=closing, reason=reason)
    )


def _members(tables: Tables, group_id: str) -> list[Job]:
    jobs = [tables.jobs[job_id] for job_id, group in tables.members.items() if group == group_id]
    return sorted(jobs, key=lambda job: job.seq)


def _blocked(tables: Tables, group_id: str) -> list[Job]:
    return [job for job in _members(tables, group_id) if job.state is State.BLOCKED]


def _is_followed(tables: Tables, job: Job) -> bool:
    """Whether another link of its chain, a member too, comes after it."""
    return tables.successors.get(job.id) in tables.members

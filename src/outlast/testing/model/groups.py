"""Groups of the model store."""

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
    check_group,
    membership_error,
)
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.limits import MAX_REASON, truncate
from outlast.core.state import FINAL, WAITING, State
from outlast.store.contract.notifications import Notification
from outlast.testing.model.base import ModelOperations
from outlast.testing.model.maintenance import page
from outlast.testing.model.tables import GroupRow, Tables


class ModelGroupOperations(ModelOperations):
    """Groups of the model store."""

    async def add_group(self, group: NewGroup) -> bool:
        """Add a group; return False if its id is taken."""
        return add_group(self._working, check_group(group), self._clock.now())

    async def seal_group(self, group_id: str) -> bool:
        """Seal a group if all members are there; return False otherwise."""
        sealed = seal_group(self._working, group_id, self._clock.now())
        self._notify(Notification(queues=frozenset({""})))
        return sealed

    async def stop_group(self, group_id: str, *, reason: str | None, skip: bool = False) -> bool:
        """Close a group, unless it is finished or closes already."""
        return stop_group(self._working, group_id, reason, skip=skip)

    async def group(self, group_id: str) -> Group | None:
        """Return a group with its members counted, or None."""
        return record(self._tables, group_id)

    async def find_groups(self, *, limit: int, before: int | None = None) -> list[Group]:
        """Return groups, the newest first."""
        return found(self._tables, limit, before)

    async def groups_finished(self, group_ids: Sequence[str]) -> list[bool | None]:
        """Return for each group whether it is finished; None if it does not exist."""
        return [over(self._tables, group_id) for group_id in group_ids]

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        """Return groups that close, with their policy."""
        return closing_groups(self._tables, limit)

    async def remaining_members(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        """Return members of a closing group that wait, or run without a cancel request."""
        return page(left_over(self._tables, group_id), after, limit)

    async def mark_groups_closed(self, *, limit: int) -> int:
        """Mark closing groups that are finished; return how many."""
        return sweep(self._working, limit)

    async def expire_groups(self, *, older_than: timedelta, limit: int) -> int:
        """Stop groups that were not sealed within `older_than`; return how many."""
        return expire(self._working, older_than, limit, self._clock.now())


def add_group(tables: Tables, new: NewGroup, now: datetime) -> bool:
    """Add a group; return False if its id is taken."""
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
    """Return why the job cannot join its group; None if it can, or joins none."""
    if not new.member:
        return None
    row = tables.groups.get(new.group_id or "")
    if row is None:
        return membership_error(new, is_known=False, is_sealed=False, closing=None)
    is_sealed = row.group.sealed_at is not None
    return membership_error(new, is_known=True, is_sealed=is_sealed, closing=row.group.closing)


def seal_group(tables: Tables, group_id: str, now: datetime) -> bool:
    """Seal the group if all members are there."""
    row = tables.groups.get(group_id)
    if row is None or row.group.sealed_at is not None:
        return row is not None
    roots = [job for job in _members(tables, group_id) if job.root_id == job.id]
    if len(roots) != row.group.total or row.group.closing is not None:
        return False
    tables.groups[group_id] = replace(row, group=replace(row.group, sealed_at=now))
    blocked = _blocked(tables, group_id)
    first = None if row.group.mode is GroupMode.PARALLEL else 1
    for job in blocked[:first]:
        tables.jobs[job.id] = replace(job, state=State.SCHEDULED)
    return True


def stop_group(tables: Tables, group_id: str, reason: str | None, *, skip: bool) -> bool:
    """Close the group, unless it is finished or closes already."""
    if over(tables, group_id) is not False or tables.groups[group_id].group.closing is not None:
        return False
    why = None if reason is None else truncate(reason, MAX_REASON)
    _close(tables, group_id, ClosePolicy.SKIP if skip else ClosePolicy.STOP, why)
    return True


def advance(tables: Tables, was: Job, change: Change, now: datetime) -> None:
    """Apply a written change to the group of the job, which was `was` before."""
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
        tables.append_event(told, kind, at=now, run_id=None, reason=step.value, detail=group_id)
    elif (
        step is GroupAction.NEXT and was.state is not State.BLOCKED and group.sealed_at is not None
    ):
        root = tables.jobs[job.root_id].seq
        for following in [b for b in _blocked(tables, group_id) if b.seq > root][:1]:
            tables.jobs[following.id] = replace(following, state=State.SCHEDULED)


def record(tables: Tables, group_id: str) -> Group | None:
    """Return the group with its members counted."""
    row = tables.groups.get(group_id)
    if row is None:
        return None
    last = [job for job in _members(tables, group_id) if not _is_followed(tables, job)]
    return replace(row.group, counts=dict(Counter(job.state for job in last)))


def found(tables: Tables, limit: int, before: int | None) -> list[Group]:
    """Return groups, the newest first."""
    newest = sorted((row.group for row in tables.groups.values()), key=lambda g: -g.seq)
    page = [group.id for group in newest if before is None or group.seq < before][:limit]
    return [group for group_id in page if (group := record(tables, group_id))]


def over(tables: Tables, group_id: str) -> bool | None:
    """Return True if no member waits or runs, or ever will; None if there is no such group."""
    row = tables.groups.get(group_id)
    if row is None:
        return None
    is_complete = row.group.sealed_at is not None or row.group.closing is not None
    return is_complete and all(job.state in FINAL for job in _members(tables, group_id))


def closing_groups(tables: Tables, limit: int) -> list[ClosingGroup]:
    """Return closing groups that are not marked closed, the earliest first."""
    unswept = sorted(
        (row.group for row in tables.groups.values() if not row.swept), key=lambda g: g.seq
    )
    return [ClosingGroup(g.id, g.closing) for g in unswept if g.closing is not None][:limit]


def left_over(tables: Tables, group_id: str) -> list[Job]:
    """Return members of a closing group that wait, or run without a cancel request."""
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
    """Mark closing groups that are finished."""
    ended = [g.id for g in closing_groups(tables, len(tables.groups)) if over(tables, g.id)]
    for group_id in ended[:limit]:
        tables.groups[group_id] = replace(tables.groups[group_id], swept=True)
    return len(ended[:limit])


def expire(tables: Tables, older_than: timedelta, limit: int, now: datetime) -> int:
    """Stop groups that were not sealed in time."""
    groups = sorted((row.group for row in tables.groups.values()), key=lambda g: g.created_at)
    old = [
        g.id
        for g in groups
        if g.sealed_at is None and g.closing is None and g.created_at < now - older_than
    ]
    for group_id in old[:limit]:
        _close(tables, group_id, ClosePolicy.STOP, NEVER_COMPLETED)
    return len(old[:limit])


def is_kept(tables: Tables, job: Job) -> bool:
    """Return True if a chain must stay because its group is not finished."""
    group_id = tables.members.get(job.root_id)
    return group_id is not None and not over(tables, group_id)


def forget(tables: Tables, gone: Sequence[JobId], before: datetime) -> None:
    """Remove these jobs from their groups, and delete groups without members."""
    left = {tables.members.pop(job_id) for job_id in gone if job_id in tables.members}
    occupied = set(tables.members.values())
    for group_id, row in list(tables.groups.items()):
        group = row.group
        was_filling = row.swept and group.sealed_at is None and group.created_at < before
        if group_id not in occupied and (group_id in left or was_filling):
            del tables.groups[group_id]


def _close(tables: Tables, group_id: str, closing: ClosePolicy, reason: str | None) -> None:
    row = tables.groups[group_id]
    tables.groups[group_id] = replace(row, group=replace(row.group, closing=closing, reason=reason))


def _members(tables: Tables, group_id: str) -> list[Job]:
    jobs = [tables.jobs[job_id] for job_id, group in tables.members.items() if group == group_id]
    return sorted(jobs, key=lambda job: job.seq)


def _blocked(tables: Tables, group_id: str) -> list[Job]:
    return [job for job in _members(tables, group_id) if job.state is State.BLOCKED]


def _is_followed(tables: Tables, job: Job) -> bool:
    """Return True if another member of its chain comes after the job."""
    return tables.successors.get(job.id) in tables.members

"""End of the remaining members of a closing group."""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from outlast.core.decide import decide
from outlast.core.event import GroupStopped
from outlast.core.group import ClosePolicy, ClosingGroup
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.store.contract.groups import Groups
from outlast.store.contract.jobs import Jobs

MEMBERS_PER_WRITE: Final = 500


class GroupClosingStore(Jobs, Groups, Protocol):
    """The part of a store that ends the members of a closing group."""


async def end_remaining_members(
    store: GroupClosingStore, group: ClosingGroup, new_id: Callable[[], JobId]
) -> int:
    """Cancel or skip waiting members; if the group stops, ask running ones to stop as well.

    Returns how many members changed. The writes are small and independent: after a crash, or
    beside another process that does the same, the next call continues.
    """
    ended, after = 0, 0
    while left := await store.remaining_members(group.id, after=after, limit=MEMBERS_PER_WRITE):
        ended += await _end(store, group, left, new_id)
        after = left[-1].seq
    return ended


async def end_first(
    store: GroupClosingStore, group: ClosingGroup, new_id: Callable[[], JobId]
) -> int:
    """End the members that are next in claim order, in one write; return how many changed."""
    left = await store.remaining_members(group.id, after=0, limit=MEMBERS_PER_WRITE)
    return await _end(store, group, left, new_id) if left else 0


async def _end(
    store: GroupClosingStore, group: ClosingGroup, left: Iterable[Job], new_id: Callable[[], JobId]
) -> int:
    event = GroupStopped(skip=group.closing is ClosePolicy.SKIP)
    # A refused change means that the job changed meanwhile, or that another process was first.
    return sum(await store.apply([decide(job, event, new_id=new_id) for job in left]))

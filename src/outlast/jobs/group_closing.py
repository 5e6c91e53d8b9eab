"""Ending the members that are left over when a group closes."""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from outlast.core.decide import decide
from outlast.core.event import GroupStopped
from outlast.core.group import ClosePolicy, ClosingGroup
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.store.contract.groups import Groups
from outlast.store.contract.jobs import Jobs

AT_ONCE: Final = 500


class GroupClosingStore(Jobs, Groups, Protocol):
    """What sweeping needs of a store."""


async def end_remaining_members(
    store: GroupClosingStore, group: ClosingGroup, new_id: Callable[[], JobId]
) -> int:
    """Cancel or skip who waits and, if the group stops, ask who runs; how many that were.

    In small writes, each job alone: killed half-way, or done by two at once, whoever sweeps next
    goes on.
    """
    ended, after = 0, 0
    while left := await store.remaining_members(group.id, after=after, limit=AT_ONCE):
        ended += await _end(store, group, left, new_id)
        after = left[-1].seq
    return ended


async def end_first(
    store: GroupClosingStore, group: ClosingGroup, new_id: Callable[[], JobId]
) -> int:
    """The same in one write, for those who would be taken next; how many that were."""
    left = await store.remaining_members(group.id, after=0, limit=AT_ONCE)
    return await _end(store, group, left, new_id) if left else 0


async def _end(
    store: GroupClosingStore, group: ClosingGroup, left: Iterable[Job], new_id: Callable[[], JobId]
) -> int:
    event = GroupStopped(skip=group.closing is ClosePolicy.SKIP)
    # A refusal means that the job moved on meanwhile, or that another sweeper was first.
    return sum(await store.apply([decide(job, event, new_id=new_id) for job in left]))

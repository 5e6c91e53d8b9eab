"""Contract: groups, jobs that are started, watched and stopped together.

A member is a job added with `member=True` and the group's id; a `group_id` alone makes none. It is
stored `blocked` and runs when its group allows it. The write that ends a member also applies
`core.group.action_after_member`: it unblocks the next member of a sequential group, or closes the
group and records a `group_stopped` event on that member. Maintenance then ends the remaining
members of a closing group in small batches.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from outlast.core.group import ClosingGroup, Group, NewGroup
from outlast.core.job import Job


class Groups(Protocol):
    """Groups from their first member to their last."""

    async def add_group(self, group: NewGroup) -> bool:
        """Store a group without members; return False and change nothing if its id is known.

        Its members follow by `add`, which refuses them if the group does not exist, is sealed or
        is closing; a refused member claims no key. Raises InvalidGroup if the group is invalid.
        """
        ...

    async def seal_group(self, group_id: str) -> bool:
        """Declare the group complete and unblock all members, or the first of a sequential group.

        Atomic. Unblocked members are `scheduled`, and the next claim queues those that are due.
        Returns False and writes nothing unless exactly `total` members are stored and the group
        is not closing. Returns True for a group that is sealed already.
        """
        ...

    async def stop_group(self, group_id: str, *, reason: str | None, skip: bool = False) -> bool:
        """Close the group, sealed or not; return True if this call closed it.

        Returns False if it is closing already, is over, or does not exist. From now on no end of a
        member unblocks another; maintenance ends the remaining members.
        """
        ...

    async def group(self, group_id: str) -> Group | None:
        """Return the group with the counts of its members, from one snapshot, or None."""
        ...

    async def find_groups(self, *, limit: int, before: int | None = None) -> list[Group]:
        """Return groups from one snapshot, the newest `seq` first.

        `before` is the `seq` of the last group seen.
        """
        ...

    async def groups_finished(self, group_ids: Sequence[str]) -> list[bool | None]:
        """Return whether each group is over, in the order asked; None for an unknown id.

        The same as `group(…).is_over`, at a cost that does not grow with the members.
        """
        ...

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        """Return closing groups that are not marked closed, the earliest first."""
        ...

    async def remaining_members(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        """Return waiting members of a closing group; if it stops, also running ones.

        Running members with a cancel request are left out. The order is that of storage; `after`
        is the `seq` of the last member seen. Empty for a group that is not closing.
        """
        ...

    async def mark_groups_closed(self, *, limit: int) -> int:
        """Mark up to `limit` closing groups whose members have all ended; return how many."""
        ...

    async def expire_groups(self, *, older_than: timedelta, limit: int) -> int:
        """Stop up to `limit` groups stored that long ago and never sealed; return how many.

        The process that was to fill them is gone. The reason is `never_completed`.
        """
        ...

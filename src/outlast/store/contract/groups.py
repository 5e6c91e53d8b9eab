"""The contract for groups: jobs that are watched, started and stopped together.

A member is a job added with `member=True` and the group's id; a `group_id` alone makes none. It is
stored `blocked` and runs when its group says so. The write that ends a member, whoever makes it,
does with it what `core.group.after` says: in a sequential group the next member is unblocked, and
where a failure stops the group it closes, which leaves a `group_stopped` event on that member.
Those left over in a closing group are then ended in small batches by whoever sweeps.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from outlast.core.group import ClosingGroup, Group, NewGroup
from outlast.core.job import Job


class Groups(Protocol):
    """Groups from their first member to their last."""

    async def add_group(self, group: NewGroup) -> bool:
        """Store a group without members; False if one of that id is there, which stays as it is.

        InvalidGroup if it cannot be stored. Its members follow by `add`, which refuses them when
        there is no such group, or it is sealed, or it closes; a refused one takes no key.
        """
        ...

    async def seal_group(self, group_id: str) -> bool:
        """It is complete: in one write unblock all members, or the first of a sequential one.

        Unblocked members are `scheduled`, and queued by the next claim if they are due. False,
        and nothing is written, unless exactly `total` members are stored and it does not close.
        True and no more for one that is sealed already.
        """
        ...

    async def stop_group(self, group_id: str, *, reason: str | None, skip: bool = False) -> bool:
        """Close it, sealed or not; True if this call did.

        False if it closes already, is over, or does not exist. No member of it starts a run
        because of an end from now on; those left over are for whoever sweeps.
        """
        ...

    async def group(self, group_id: str) -> Group | None:
        """The group as it stands at one moment; None if there is none."""
        ...

    async def find_groups(self, *, limit: int, before: int | None = None) -> list[Group]:
        """Groups at one moment, the newest `seq` first; `before` pages on from the last seen."""
        ...

    async def groups_finished(self, group_ids: Sequence[str]) -> list[bool | None]:
        """Whether each one is over, in the order asked; None where there is none.

        The same as `group(…).is_over`, at a cost that does not grow with its members.
        """
        ...

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        """Groups that close and were not swept, the earliest first."""
        ...

    async def remaining_members(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        """Members of a closing group that still wait; if it stops, also those that run unasked.

        In the order in which they were stored; `after` pages on from the `seq` of the last one
        seen. Nothing for a group that does not close.
        """
        ...

    async def mark_groups_closed(self, *, limit: int) -> int:
        """Forget, for `closing_groups`, up to `limit` whose members have all ended; how many."""
        ...

    async def expire_groups(self, *, older_than: timedelta, limit: int) -> int:
        """Stop up to `limit` groups that were stored that long ago and never sealed; how many.

        Whoever was to fill them has gone: the reason is `never_completed`.
        """
        ...

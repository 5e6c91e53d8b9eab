"""Bringing groups that close to their end, whoever closed them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from outlast.core.ids import JobId
from outlast.jobs.group_closing import (
    MEMBERS_PER_WRITE,
    GroupClosingStore,
    end_first,
    end_remaining_members,
)

FEW: Final = 10
"""So many groups are looked at by whoever has just written a failure."""

ABANDONED: Final = timedelta(minutes=10)
"""After that long a group whose members are not all there is nobody's any more."""


@dataclass(frozen=True, slots=True)
class GroupsClosed:
    """What one step did."""

    expired: int = 0  # groups that nobody completed, stopped
    ended: int = 0  # members that were left over in a closing group
    over: int = 0  # closing groups of which nothing is left


class GroupCloser:
    """Each step can be killed anywhere and taken by several workers at once."""

    def __init__(self, store: GroupClosingStore, new_id: Callable[[], JobId]) -> None:
        self._store = store
        self._new_id = new_id

    async def close_first_batch(self) -> int:
        """At once after a failure, so that who waits does not start; the rest is for a sweep."""
        closing = await self._store.closing_groups(limit=FEW)
        return sum([await end_first(self._store, group, self._new_id) for group in closing])

    async def run_once(self) -> GroupsClosed:
        """Stop what nobody completed, and end who is left over in every group that closes."""
        expired = await self._store.expire_groups(older_than=ABANDONED, limit=MEMBERS_PER_WRITE)
        closing = await self._store.closing_groups(limit=MEMBERS_PER_WRITE)
        ended = [await end_remaining_members(self._store, group, self._new_id) for group in closing]
        over = await self._store.mark_groups_closed(limit=MEMBERS_PER_WRITE) if closing else 0
        return GroupsClosed(expired, sum(ended), over)

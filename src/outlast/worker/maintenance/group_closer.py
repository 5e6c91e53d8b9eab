"""The group closer: ends the remaining members of closing groups."""

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

FIRST_BATCH_GROUPS: Final = 10
"""Closing groups that a worker handles directly after it wrote a failure."""

INCOMPLETE_GROUP_TIMEOUT: Final = timedelta(minutes=10)
"""Age after which a group that was never completed is stopped."""


@dataclass(frozen=True, slots=True)
class GroupsClosed:
    """What one step did."""

    expired: int = 0  # groups that were never completed, now stopped
    ended: int = 0  # remaining members of closing groups, now ended
    closed: int = 0  # closing groups without remaining members, now closed


class GroupCloser:
    """Each step is idempotent: it may be killed at any point and run by several workers at once."""

    def __init__(self, store: GroupClosingStore, new_id: Callable[[], JobId]) -> None:
        self._store = store
        self._new_id = new_id

    async def close_first_batch(self) -> int:
        """End the first members of closing groups; return how many.

        Called directly after a failure, so that waiting members do not start. `run_once` ends the
        rest.
        """
        closing = await self._store.closing_groups(limit=FIRST_BATCH_GROUPS)
        return sum([await end_first(self._store, group, self._new_id) for group in closing])

    async def run_once(self, *, expire: bool = True) -> GroupsClosed:
        """Stop groups that were never completed and end the members of closing groups.

        With `expire` False, groups that were never completed are left alone.
        """
        expired = await self._expire() if expire else 0
        closing = await self._store.closing_groups(limit=MEMBERS_PER_WRITE)
        ended = [await end_remaining_members(self._store, group, self._new_id) for group in closing]
        closed = await self._store.mark_groups_closed(limit=MEMBERS_PER_WRITE) if closing else 0
        return GroupsClosed(expired, sum(ended), closed)

    async def _expire(self) -> int:
        return await self._store.expire_groups(
            older_than=INCOMPLETE_GROUP_TIMEOUT, limit=MEMBERS_PER_WRITE
        )

"""Groups of jobs."""

from collections.abc import Sequence
from datetime import timedelta

from outlast.clock import to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.group import ClosePolicy, ClosingGroup, Group, NewGroup, check_group
from outlast.core.job import Job
from outlast.core.limits import MAX_REASON, truncate
from outlast.store.rows import jobs as job_rows
from outlast.store.sqlite import verbs
from outlast.store.sqlite.operations.base import SqliteOperations


class GroupOperations(SqliteOperations):
    """Groups of jobs."""

    async def add_group(self, group: NewGroup) -> bool:
        added: bool = (await self._writer.submit(verbs.add_group, [check_group(group)]))[0]
        return added

    async def seal_group(self, group_id: str) -> bool:
        sealed: bool = (await self._writer.submit(verbs.seal_group, [group_id]))[0]
        return sealed

    async def stop_group(self, group_id: str, *, reason: str | None, skip: bool = False) -> bool:
        closing = ClosePolicy.SKIP if skip else ClosePolicy.STOP
        why = None if reason is None else truncate(reason, MAX_REASON)
        stopped: bool = (await self._writer.submit(verbs.stop_group, [(group_id, closing, why)]))[0]
        return stopped

    async def group(self, group_id: str) -> Group | None:
        found = await self._reader.rows("groups.get", id=group_id)
        return job_rows.group(found[0]) if found else None

    async def find_groups(self, *, limit: int, before: int | None = None) -> list[Group]:
        found = await self._reader.rows("groups.find", limit=limit, before=before)
        return [job_rows.group(row) for row in found]

    async def groups_finished(self, group_ids: Sequence[str]) -> list[bool | None]:
        found = await self._reader.rows("groups.over", ids=list(group_ids))
        over = {group_id: bool(is_over) for group_id, is_over in found}
        return [over.get(group_id) for group_id in group_ids]

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        found = await self._reader.rows("groups.closing", limit=limit)
        return [ClosingGroup(group_id, ClosePolicy(closing)) for group_id, closing in found]

    async def remaining_members(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        return await self._jobs("groups.left_over", id=group_id, after=after, limit=limit)

    async def mark_groups_closed(self, *, limit: int) -> int:
        # Looked for by a reader first: most of the time there is nothing to write.
        if not await self._reader.rows("groups.sweepable"):
            return 0
        swept: int = (await self._writer.submit(verbs.sweep_groups, [limit]))[0]
        return swept

    async def expire_groups(self, *, older_than: timedelta, limit: int) -> int:
        before = to_micros(self._clock.now()) - older_than // MICROSECOND
        if not await self._reader.rows("groups.expired", before=before):
            return 0
        expired: int = (await self._writer.submit(verbs.expire_groups, [(older_than, limit)]))[0]
        return expired

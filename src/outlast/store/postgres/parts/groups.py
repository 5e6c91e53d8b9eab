"""Groups of jobs."""

from collections.abc import Sequence
from datetime import timedelta

from outlast.core.duration import MICROSECOND
from outlast.core.group import ClosePolicy, ClosingGroup, Group, NewGroup, check_group
from outlast.core.job import Job
from outlast.core.limits import MAX_REASON, truncate
from outlast.errors import InvalidGroup
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.uuids import is_uuid
from outlast.store.postgres.verbs import group as verbs
from outlast.store.postgres.verbs.footing import require_open_store
from outlast.store.rows import jobs as job_rows


class PostgresGroups(PostgresOperations):
    """Groups of jobs."""

    async def add_group(self, group: NewGroup) -> bool:
        new = check_group(group)
        if not is_uuid(new.id):
            raise InvalidGroup(f"the id of a group is {new.id!r}; use a UUID in lower case")
        return await self._lines.transact(
            require_open_store(lambda work: verbs.add_group(work, new))
        )

    async def seal_group(self, group_id: str) -> bool:
        if not is_uuid(group_id):
            return False
        return await self._lines.transact(
            require_open_store(lambda work: verbs.seal_group(work, group_id))
        )

    async def stop_group(self, group_id: str, *, reason: str | None, skip: bool = False) -> bool:
        if not is_uuid(group_id):
            return False
        closing = ClosePolicy.SKIP if skip else ClosePolicy.STOP
        why = None if reason is None else truncate(reason, MAX_REASON)
        return await self._lines.transact(
            require_open_store(lambda work: verbs.stop_group(work, group_id, closing, why))
        )

    async def group(self, group_id: str) -> Group | None:
        if not is_uuid(group_id):
            return None
        found = await self._lines.rows("groups.get", id=group_id)
        return job_rows.group(tuple(found[0])) if found else None

    async def find_groups(self, *, limit: int, before: int | None = None) -> list[Group]:
        found = await self._lines.rows("groups.find", limit=limit, before=before)
        return [job_rows.group(tuple(row)) for row in found]

    async def groups_finished(self, group_ids: Sequence[str]) -> list[bool | None]:
        known = [group_id for group_id in group_ids if is_uuid(group_id)]
        found = await self._lines.rows("groups.finished", ids=known) if known else []
        over = {group_id: bool(is_over) for group_id, is_over in found}
        return [over.get(group_id) for group_id in group_ids]

    async def closing_groups(self, *, limit: int) -> list[ClosingGroup]:
        found = await self._lines.rows("groups.closing", limit=limit)
        return [ClosingGroup(group_id, ClosePolicy(closing)) for group_id, closing in found]

    async def remaining_members(self, group_id: str, *, after: int = 0, limit: int) -> list[Job]:
        if not is_uuid(group_id):
            return []
        return await self._jobs("groups.remaining_members", id=group_id, after=after, limit=limit)

    async def mark_groups_closed(self, *, limit: int) -> int:
        # Looked for by a reader first: most of the time there is nothing to write.
        if not await self._lines.rows("groups.any_to_mark"):
            return 0
        return await self._lines.transact(
            require_open_store(lambda work: verbs.sweep_groups(work, limit))
        )

    async def expire_groups(self, *, older_than: timedelta, limit: int) -> int:
        span = older_than // MICROSECOND
        if not await self._lines.rows("groups.any_expired", now=self._now, span=span):
            return 0
        return await self._lines.transact(
            require_open_store(lambda work: verbs.expire_groups(work, older_than, limit))
        )

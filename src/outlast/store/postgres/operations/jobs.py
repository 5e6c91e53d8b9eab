"""Job reads: by id, by filter, by queue and by chain."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.overview import JobCounts
from outlast.core.state import State
from outlast.store.contract.jobs import MAX_PROMOTED_PER_CLAIM, Filter
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork, Row
from outlast.store.postgres.uuids import is_uuid
from outlast.store.rows.labels import LABEL_SAMPLE, SEARCHED_BY_LABEL, by_label

_FILTERED_HERE: Final = frozenset({"jobs.find_id", "jobs.find_key"})
"""Statements that ignore the rest of the filter: their few rows are filtered in Python."""

_LOWEST_UUID: Final = "00000000-0000-0000-0000-000000000000"
_HIGHEST_UUID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"

_NO_MATCH: Final[tuple[None, dict[str, Any]]] = (None, {})
"""No job can match: the id of the job or group is not a UUID."""


class PostgresJobOperations(PostgresOperations):
    """Job reads."""

    async def get(self, job_ids: Sequence[JobId]) -> list[Job | None]:
        """Return each job, or None where there is none."""
        known = [job_id for job_id in job_ids if is_uuid(job_id)]
        found = await self._jobs("jobs.get", ids=known) if known else []
        by_id = {job.id: job for job in found}
        return [by_id.get(job_id) for job_id in job_ids]

    async def peek(self, queue: str, *, limit: int) -> list[Job]:
        """Return the next jobs of a queue in claim order."""
        values = {"now": self._now, "promoted": MAX_PROMOTED_PER_CLAIM}
        return await self._jobs("jobs.peek", queue=queue, limit=limit, **values)

    async def find(self, what: Filter, *, limit: int, before: int | None = None) -> list[Job]:
        """Return the newest jobs that match, before the `seq` of the last page."""
        name, values = _find_statement(what)
        if name is None:
            return []
        if what.labels and name in SEARCHED_BY_LABEL:
            counted = {"labels": values["labels"], "most": LABEL_SAMPLE}
            counts = await self._pool.rows("jobs.label_counts", **counted)
            name, values = by_label(name, values, counts)
        if name in _FILTERED_HERE:
            jobs = await self._jobs(name, before=before, **values)
            return [job for job in jobs if what.fits(job)][:limit]
        page = await self._jobs(name, limit=limit, before=before, **values)
        return [job for job in page if what.is_recent(job)]

    async def counts(self) -> JobCounts:
        """Return the number of jobs by queue and state, in one snapshot."""
        found = await self._pool.in_snapshot(partial(full_scan, "jobs.counts"))
        return JobCounts({(queue, State(state)): count for queue, state, count in found})

    async def chain(self, job_id: JobId) -> list[Job]:
        """Return every job of a job's chain, oldest first."""
        return await self._jobs("jobs.chain", id=job_id) if is_uuid(job_id) else []


async def full_scan(name: str, work: PostgresUnitOfWork, **values: Any) -> list[Row]:
    """Run a statement that reads whole tables, with sequential scans and hash joins enabled."""
    await work.rows("jobs.allow_full_scans")
    return await work.rows(name, **values)


def _find_statement(what: Filter) -> tuple[str | None, dict[str, Any]]:
    """Return the statement for a filter and its values: the one that reads the fewest rows."""
    if what.key is not None:
        return "jobs.find_key", {"key": what.key}
    if what.prefix is not None:
        return _find_by_prefix(what.prefix)
    states = None if what.states is None else sorted(what.states)
    values: dict[str, Any] = {"queue": what.queue, "type": what.type, "states": states}
    values["labels"] = sorted(what.labels) or None
    if what.group is not None:
        if not is_uuid(what.group):
            return _NO_MATCH
        return "groups.members", {**values, "group": what.group}
    if what.states is not None and State.SUCCEEDED not in what.states:
        return "jobs.find_live", values
    return "jobs.find", values


def _find_by_prefix(prefix: str) -> tuple[str | None, dict[str, Any]]:
    """Return the range from the lowest to the highest id with that prefix."""
    first, last = (prefix + rest[len(prefix) :] for rest in (_LOWEST_UUID, _HIGHEST_UUID))
    if not (is_uuid(first) and is_uuid(last)):
        return _NO_MATCH
    return "jobs.find_id", {"first": first, "last": last}

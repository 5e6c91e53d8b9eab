"""Job reads: by id, by filter, in claim order, by chain; counts."""

from collections.abc import Sequence
from typing import Any, Final

from outlast.clock import to_micros
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.overview import JobCounts
from outlast.core.state import State
from outlast.store.contract.jobs import MAX_PROMOTED_PER_CLAIM, Filter
from outlast.store.rows.labels import LABEL_SAMPLE, SEARCHED_BY_LABEL, by_label
from outlast.store.sqlite.operations.base import SqliteOperations

_UNFILTERED: Final = frozenset({"jobs.find_id", "jobs.find_key"})
"""Statements that find few jobs and ignore the rest of the filter, which is applied here."""


class SqliteJobOperations(SqliteOperations):
    """Read jobs."""

    async def get(self, job_ids: Sequence[JobId]) -> list[Job | None]:
        """Return each job, in the order asked; None for an unknown id."""
        found = await self._jobs("jobs.get", ids=list(job_ids))
        by_id = {job.id: job for job in found}
        return [by_id.get(job_id) for job_id in job_ids]

    async def peek(self, queue: str, *, limit: int) -> list[Job]:
        """Return the next jobs of a queue in claim order."""
        values = {"now": to_micros(self._clock.now()), "promoted": MAX_PROMOTED_PER_CLAIM}
        return await self._jobs("jobs.peek", queue=queue, limit=limit, **values)

    async def find(self, what: Filter, *, limit: int, before: int | None = None) -> list[Job]:
        """Return jobs that match the filter, the newest `seq` first."""
        name, values = _statement_for(what)
        if what.labels and name in SEARCHED_BY_LABEL:
            counted = {"labels": values["labels"], "most": LABEL_SAMPLE}
            counts = await self._reader.rows("jobs.label_counts", **counted)
            name, values = by_label(name, values, counts)
        if name in _UNFILTERED:
            found = await self._jobs(name, before=before, **values)
            return [job for job in found if what.fits(job)][:limit]
        page = await self._jobs(name, limit=limit, before=before, **values)
        return [job for job in page if what.is_recent(job)]

    async def counts(self) -> JobCounts:
        """Return the number of jobs by queue and state."""
        found = await self._reader.cached_rows("jobs.counts")
        return JobCounts({(queue, State(state)): count for queue, state, count in found})

    async def chain(self, job_id: JobId) -> list[Job]:
        """Return the retry chain of a job, root first."""
        return await self._jobs("jobs.chain", id=job_id)


def _statement_for(what: Filter) -> tuple[str, dict[str, Any]]:
    """Return the statement whose cost fits the filter, and its values."""
    if what.key is not None:
        return "jobs.find_key", {"key": what.key}
    if what.prefix is not None:
        return "jobs.find_id", {"prefix": what.prefix}
    states = None if what.states is None else sorted(what.states)
    values: dict[str, Any] = {"queue": what.queue, "type": what.type, "states": states}
    values["labels"] = sorted(what.labels) or None
    if what.group is not None:
        return "groups.members", {**values, "group": what.group}
    if what.states is not None and State.SUCCEEDED not in what.states:
        return "jobs.find_live", values
    return "jobs.find", values

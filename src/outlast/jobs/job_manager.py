"""Job manager: find stored jobs, and retry or cancel all that match."""

from collections.abc import AsyncIterator
from typing import Unpack

from outlast.core.job import Job
from outlast.jobs import bulk, job_search
from outlast.jobs.bulk import BulkResult
from outlast.jobs.client import Client
from outlast.jobs.job_search import JobPage, JobQuery


class JobManager:
    """Stored jobs by condition: `async for job in app.jobs.find(state="dead_letter"):`.

    Each method takes the same conditions; together they must all hold:

    Attributes:
        state: A state, several, or `waiting`, `open`, `done` or `dead`.
        type: A job type, or a pattern such as `mail.*`.
        queue: A queue, or a pattern.
        key: A `key` or `active_key` with which a job was enqueued.
        group: The id of a group.
        since: A moment, or a time ago such as `2h`: jobs created since then.
        tag: A tag, or several that a job must all have.
        meta: Values of its `meta` by name, which must all be equal.
        params: Params by name that are equal; `{"order.id": 3}` for a nested one.
        error: A part of the error text of one of its runs.

    The store finds jobs by state, type, queue, key, group, tag and meta; it returns the others to
    be looked at one by one, so narrow those searches by `since`. InvalidArgument if a condition is
    wrong.
    """

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client = client

    def find(self, **query: Unpack[JobQuery]) -> AsyncIterator[Job]:
        """Iterate over all jobs that match, the newest first; reads a page at a time."""
        return job_search.find_jobs(self._client, query)

    async def page(
        self, *, limit: int = 100, after: str | None = None, **query: Unpack[JobQuery]
    ) -> JobPage:
        """Return one page of the jobs that match, the newest first.

        For the next page pass the `after` of this one; it is None on the last page.
        """
        return await job_search.find_page(self._client, query, limit=limit, after=after)

    async def retry(self, *, limit: int = 10_000, **query: Unpack[JobQuery]) -> BulkResult:
        """Retry the jobs that match, the newest first: `await app.jobs.retry(queue="mail")`.

        Without a state these are the dead letters. Jobs that were retried already are left out,
        so the call can be repeated. Refused are jobs that are delivered once, and those whose
        active key another job holds. Each retry is stored by itself; if the store fails, some
        are.
        """
        return await bulk.retry_jobs(self._client, query, limit=limit)

    async def cancel(
        self, *, reason: str | None = None, limit: int = 10_000, **query: Unpack[JobQuery]
    ) -> BulkResult:
        """Cancel the unfinished jobs that match, and ask those that run to stop.

        Without a state these are all that have not ended. Jobs that were asked to stop before
        are left out. Refused are jobs that ended meanwhile. Each job is cancelled by itself; if
        the store fails, some are.
        """
        return await bulk.cancel_jobs(self._client, query, reason=reason, limit=limit)

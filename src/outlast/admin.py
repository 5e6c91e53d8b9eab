"""Operator half of the app: read, cancel, retry, move and edit stored jobs."""

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import Any

from outlast.core.duration import Duration
from outlast.core.event import EventRecord
from outlast.core.explain import Explanation
from outlast.core.job import Job
from outlast.core.lineage import Lineage
from outlast.core.run import RunRecord
from outlast.core.state import State
from outlast.jobs import job_search, positions, retry
from outlast.jobs.client import Client
from outlast.jobs.completion import job_id_of, missing
from outlast.jobs.event_stream import event_stream
from outlast.jobs.explanation import explain_job
from outlast.jobs.groups import GroupManager
from outlast.jobs.handle import Handle
from outlast.jobs.positions import End
from outlast.jobs.queues import QueueManager


class Admin:
    """Reads and changes of stored jobs, queues and groups, whichever process stored them.

    Every method that takes a job id raises JobNotFound if the store has no such job.
    """

    _client: Client

    @property
    def queues(self) -> QueueManager:
        """Queues by name: get, list, save, pause, resume, next_jobs, renumber."""
        return QueueManager(self._client)

    @property
    def groups(self) -> GroupManager:
        """Jobs watched together: start, get, list, handle, cancel."""
        return GroupManager(self._client)

    async def get(self, job_id: str) -> Job:
        """Return the job as it is stored now."""
        return await self._client.find(job_id_of(job_id))

    async def find(
        self,
        *,
        states: Iterable[str] | None = None,
        queue: str | None = None,
        type: str | None = None,  # noqa: A002 - a job's own word
        key: str | None = None,
        tags: Iterable[str] | None = None,
        meta: Mapping[str, Any] | None = None,
        limit: int = 100,
        before: Job | None = None,
    ) -> list[Job]:
        """Return stored jobs, the newest first: `await app.find(states=["dead_letter"])`.

        Without arguments it returns the last 100 jobs. For the next page pass the last job as
        `before`. A `key` finds the jobs enqueued with it as `key` or `active_key`, `tags` and
        `meta` those that have all of them.
        """
        return await job_search.find_jobs(
            self._client,
            states=states,
            queue=queue,
            type=type,
            key=key,
            tags=tags,
            meta=meta,
            limit=limit,
            before=before,
        )

    async def runs(self, job_id: str) -> list[RunRecord]:
        """Return every run of a job, the first one first."""
        return await (await self._client.store()).runs(job_id_of(job_id))

    async def events(self, job_id: str) -> list[EventRecord]:
        """Return the recorded events of a job, oldest first."""
        return await (await self._client.store()).events(job_id_of(job_id))

    def event_stream(self, after: int = 0, *, follow: bool = False) -> AsyncIterator[EventRecord]:
        """Iterate over the events of all jobs: `async for event in app.event_stream():`.

        The order is that of the event ids, and no event is skipped: store the last id seen and
        continue `after` it. With `follow` the iterator waits for new events without end.
        """
        return event_stream(self._client, after=after, follow=follow)

    async def wait(self, job_id: str, timeout: Duration | None = None) -> Job:  # noqa: ASYNC109 - WaitTimeout names the job
        """Wait until a job has ended and return it; for a retry chain, its last job.

        Raises WaitTimeout after `timeout`; the job goes on.
        """
        return await self._client.wait(job_id_of(job_id), timeout=timeout)

    async def cancel(self, job_id: str, reason: str | None = None) -> State:
        """Cancel a waiting job, or ask a running one to stop; return its state.

        `cancelled`: the job will not run. `running`: its handler was asked to stop.
        TransitionRefused if the job has ended already.
        """
        return await self._client.cancel(job_id_of(job_id), reason=reason)

    async def explain(self, job_id: str) -> Explanation:
        """Return why a job waits: every gate on its way, the one that blocks it, the remedy.

        `str(…)` of it is the text that `outlast explain` prints.
        """
        store, limit = await self._client.store(), self._client.settings.max_unfit
        found = await explain_job(store, job_id_of(job_id), max_unfit=limit)
        if found is None:
            raise missing(job_id)
        return found

    async def lineage(self, job_id: str) -> Lineage:
        """Return the retry chain of a job, from its root to its last job, with every attempt."""
        return await retry.lineage(self._client, job_id_of(job_id))

    async def retry(self, job_id: str) -> Handle[Any]:
        """Enqueue a copy of a failed, skipped or cancelled job; its attempts start at zero.

        The copy follows the last job of the retry chain. TransitionRefused if that job has not
        ended, succeeded, or is delivered once; DuplicateJob if it was retried meanwhile.
        """
        return await retry.retry(self._client, job_id_of(job_id))

    async def retry_many(
        self,
        *,
        states: Iterable[str] | None = None,
        queue: str | None = None,
        type: str | None = None,  # noqa: A002 - a job's own word
        limit: int = 1000,
    ) -> list[Handle[Any]]:
        """Retry many jobs, the newest first: `await app.retry_many(queue="mail")`.

        The default of `states` is dead letters alone. Jobs that were retried already and jobs
        that are delivered once are left out, so the call is idempotent.
        """
        return await retry.retry_many(
            self._client, states=states, queue=queue, type=type, limit=limit
        )

    async def move(
        self,
        job_id: str,
        to: End | None = None,
        *,
        before: str | None = None,
        after: str | None = None,
        swap: str | None = None,
    ) -> Job:
        """Move a waiting job: `await app.move(job_id, "front")`, `before=other`.

        The move is within the job's queue and priority; other jobs keep their order. Returns
        the job with its new position. TransitionRefused if the job or the other one no longer
        waits; InvalidArgument if the other one has another queue or priority.
        """
        beside = {"before": before, "after": after, "swap": swap}
        return await positions.move(self._client, job_id_of(job_id), to, **beside)

    async def edit(
        self,
        job_id: str,
        *,
        params: Mapping[str, Any] | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
    ) -> Job:
        """Change a waiting job: `await app.edit(job_id, params={"n": 3}, delay="5m")`.

        `params` replaces all params and is validated as at enqueue; params are frozen at the
        first claim. With another `priority` the job is ordered as a new job of that priority:
        by its due time, or last in a `position` queue. TransitionRefused if it no longer waits.
        """
        return await positions.edit(
            self._client, job_id_of(job_id), params=params, priority=priority, delay=delay, at=at
        )

    def handle(self, job_id: str) -> Handle[Any]:
        """Return a handle on a job id, whether the job exists or not."""
        return Handle(job_id_of(job_id), self._client, created=False)

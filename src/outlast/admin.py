"""What can be asked of, and done to, everything that is stored."""

from collections.abc import (
    AsyncIterator,
    Iterable,
    Mapping,
)
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
)

from outlast.core.duration import Duration
from outlast.core.event import EventRecord
from outlast.core.explain import Explanation, explain
from outlast.core.group import Group
from outlast.core.job import Job
from outlast.core.lineage import Lineage
from outlast.core.run import RunRecord
from outlast.core.state import State
from outlast.jobs import positions, queues, retry
from outlast.jobs.client import Client
from outlast.jobs.completion import job_id_of, missing
from outlast.jobs.event_stream import event_stream
from outlast.jobs.groups import PAGE, GroupHandle, check_page, group_id_of
from outlast.jobs.handle import Handle
from outlast.jobs.positions import End
from outlast.store.contract.queues import Queue

if TYPE_CHECKING:
    pass


class Admin:
    """The half of an app that looks after jobs, queues and groups, whoever stored them."""

    _client: Client

    async def get(self, job_id: str) -> Job:
        """The job as it stands; JobNotFound if there is none."""
        return await self._client.find(job_id_of(job_id))

    async def runs(self, job_id: str) -> list[RunRecord]:
        """Every run of a job, the first one first."""
        return await (await self._client.store()).runs(job_id_of(job_id))

    async def events(self, job_id: str) -> list[EventRecord]:
        """Everything unusual that happened to a job, oldest first."""
        return await (await self._client.store()).events(job_id_of(job_id))

    def event_stream(self, after: int = 0, *, follow: bool = False) -> AsyncIterator[EventRecord]:
        """Everything unusual that happened to anybody: `async for event in app.event_stream():`.

        In an order in which nothing is missed: keep the id of the last one, and go on `after` it.
        `follow` waits for more, for ever.
        """
        return event_stream(self._client, after=after, follow=follow)

    async def wait(self, job_id: str, timeout: Duration | None = None) -> Job:  # noqa: ASYNC109 - WaitTimeout names the job
        """The job once it has ended; for a chain, the last of its jobs. WaitTimeout after that."""
        return await self._client.wait(job_id_of(job_id), timeout=timeout)

    async def cancel(self, job_id: str, reason: str | None = None) -> State:
        """Ask that a job not run, or stop: `cancelled` if it will not run, `running` if told."""
        return await self._client.cancel(job_id_of(job_id), reason=reason)

    async def explain(self, job_id: str) -> Explanation:
        """Why a job waits: every gate on its way, the one that stops it, what would open it."""
        situation = await (await self._client.store()).wait_facts(job_id_of(job_id))
        if situation is None:
            raise missing(job_id)
        return explain(situation)

    async def lineage(self, job_id: str) -> Lineage:
        """The chain that job belongs to, from its root to its tip, with every attempt."""
        return await retry.lineage(self._client, job_id_of(job_id))

    async def retry(self, job_id: str) -> Handle[Any]:
        """Do a job again that failed, was skipped or cancelled: a new job, counting from zero.

        It follows the last job of the chain, and copies what was asked. TransitionRefused if that
        one has not ended so, or is delivered once; DuplicateJob if somebody retried it meanwhile.
        """
        return await retry.retry(self._client, job_id_of(job_id))

    async def retry_many(
        self,
        *,
        states: Iterable[str] | None = None,
        queue: str | None = None,
        type: str | None = None,  # noqa: A002 - it is what a job calls it
        limit: int = 1000,
    ) -> list[Handle[Any]]:
        """Do many again, the newest first: `await app.retry_many(queue="mail")`.

        Dead letters, unless `states` says which. Left out are jobs that were retried already, so
        it may be repeated, and those delivered once.
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
        """Give a job that waits another place: `await app.move(job_id, "front")`, `before=other`.

        Among the jobs of its queue and priority; the others keep their order. TransitionRefused
        if it, or the other one, does not wait any more; InvalidJob if the other is of another
        queue or priority.
        """
        place = {"before": before, "after": after, "swap": swap}
        return await positions.move(self._client, job_id_of(job_id), to, **place)

    async def edit(
        self,
        job_id: str,
        *,
        params: Mapping[str, Any] | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
    ) -> Job:
        """Change a job that waits: `await app.edit(job_id, params={"n": 3}, delay="5m")`.

        `params` are all of its arguments, checked as at its enqueue; they are frozen at the first
        claim. With another `priority` it comes among the jobs of that one as a new job would: by
        its due time, or in a `position` queue behind them. TransitionRefused if it does not wait
        any more.
        """
        return await positions.edit(
            self._client, job_id_of(job_id), params=params, priority=priority, delay=delay, at=at
        )

    async def next_jobs(self, queue: str = "default", limit: int = 10) -> list[Job]:
        """The next jobs of a queue in the order in which they are taken; what is due counts."""
        return await positions.next_jobs(self._client, queue, limit)

    async def renumber(self, queue: str) -> int:
        """Make the positions of a queue even again (100, 200, 300 …); how many changed."""
        return await positions.renumber(self._client, queue)

    async def set_queue(
        self,
        name: str,
        *,
        ordering: queues.OrderingName = "scheduled",
        concurrency: int | None = None,
        gap: int = 100,
    ) -> Queue:
        """Create a queue or change it: `await app.set_queue("story", concurrency=1)`.

        `concurrency` is how many of its jobs run at a time, over all workers; None is no limit.
        `ordering="position"` places each new job behind the last, `gap` apart. What is left out
        is set to its default; a pause stays. Jobs that wait keep their position: back in
        `scheduled`, new ones go before those that have one. InvalidJob names what cannot be.
        """
        return await queues.set_queue(self._client, name, ordering, concurrency, gap)

    async def pause(
        self, queue: str, *, reason: str | None = None, duration: Duration | None = None
    ) -> Queue:
        """Let nobody take jobs of a queue, until `resume` or for `duration`; what runs goes on.

        So does what a worker has at hand: at most `prefetch` jobs, none where `concurrency` is
        set. Pausing it again replaces reason and duration.
        """
        return await queues.pause(self._client, queue, reason, duration)

    async def resume(self, queue: str) -> bool:
        """Let a paused queue go on at once; False if it was not paused."""
        return await queues.resume(self._client, queue)

    async def queue(self, name: str) -> Queue:
        """A queue's settings and its pause, or the defaults if nobody has set it."""
        return await queues.get(self._client, name)

    async def queues(self) -> list[Queue]:
        """Every queue that was ever set or paused, by name."""
        return await (await self._client.store()).queues()

    def group_handle(self, group_id: str) -> GroupHandle:
        """A handle on a group known by its id, whether it exists or not."""
        return GroupHandle(group_id_of(group_id), self._client)

    async def groups(self, limit: int = PAGE, before: int | None = None) -> list[Group]:
        """A page of groups, the newest first; `before=groups[-1].seq` gives the next page."""
        store = await self._client.store()
        return await store.find_groups(limit=check_page(limit), before=before)

    def handle(self, job_id: str) -> Handle[Any]:
        """A handle on a job known by its id, whether it exists or not."""
        return Handle(job_id_of(job_id), self._client, created=False)

"""Queue manager: settings, pauses, claim order and positions of queues."""

import builtins
import logging
from collections.abc import Iterable
from dataclasses import replace
from types import EllipsisType
from typing import Literal

from outlast.core.duration import Duration, parse_duration
from outlast.core.job import Job
from outlast.core.limits import check_name
from outlast.core.queue import check_reason, check_settings
from outlast.errors import InvalidArgument
from outlast.jobs import positions
from outlast.jobs.client import Client
from outlast.jobs.queue_declaration import KIND, DeclaredQueue, QueueDeclaration, from_document
from outlast.store.contract.queues import Queue

log = logging.getLogger("outlast.jobs")

OrderingName = Literal["scheduled", "position"]


class QueueManager:
    """Queues by name: `await app.queues.pause("mail")`.

    A queue needs no setup: the first job enqueued into it creates it. Settings apply to all
    workers. Each method checks its arguments before it writes; InvalidArgument names the one
    that cannot be used.
    """

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, name: str) -> Queue:
        """Return a queue's settings and pause; the defaults if it was never set."""
        return await (await self._client.store()).queue(check_name(name, what="queue"))

    async def list(self) -> builtins.list[Queue]:
        """Return every queue that was ever set or paused, by name."""
        return await (await self._client.store()).queues()

    async def save(
        self,
        name: str,
        *,
        ordering: OrderingName | EllipsisType = ...,
        concurrency: int | EllipsisType | None = ...,
        gap: int | EllipsisType = ...,
    ) -> Queue:
        """Create or change a queue: `await app.queues.save("story", concurrency=1)`.

        Options left out stay as they are, and so does a pause; a new queue has the defaults.

        Args:
            name: The queue.
            ordering: `scheduled` (default) claims by due time. `position` gives each new job a
                position after the last one, `gap` apart. Waiting jobs keep their positions: after
                a change back to `scheduled`, new jobs come before those that have one.
            concurrency: How many of its jobs run at a time, over all workers; None: no limit.
            gap: Distance between two new positions (100).
        """
        check_name(name, what="queue")
        given = check_settings({"ordering": ordering, "concurrency": concurrency, "gap": gap})
        store = await self._client.store()
        await store.set_queue(replace(await store.queue(name), **given))
        return await store.queue(name)

    async def pause(
        self, name: str, *, reason: str | None = None, duration: Duration | None = None
    ) -> Queue:
        """Stop all claims from a queue until `resume`, or for `duration`; return the queue.

        Running jobs go on. So do prefetched jobs: at most `prefetch` per worker, none if the
        queue has a `concurrency`. A second pause replaces reason and duration.
        """
        check_name(name, what="queue")
        check_reason(reason, what="reason")
        try:
            span = None if duration is None else parse_duration(duration, what="duration")
        except ValueError as error:
            raise InvalidArgument(str(error)) from error
        store = await self._client.store()
        await store.pause(name, reason=reason, span=span)
        return await store.queue(name)

    async def resume(self, name: str) -> bool:
        """Allow claims from a paused queue again; return False if it was not paused."""
        return await (await self._client.store()).resume(check_name(name, what="queue"))

    async def next_jobs(self, name: str = "default", limit: int = 10) -> builtins.list[Job]:
        """Return the next due jobs of a queue in claim order."""
        return await positions.next_jobs(self._client, name, limit)

    async def renumber(self, name: str) -> int:
        """Number a queue's positions afresh (100, 200, 300 …) in the same order.

        Returns how many jobs got another position. One transaction: all of them or none.
        """
        return await positions.renumber(self._client, name)

    async def declared(self) -> builtins.list[DeclaredQueue]:
        """Return the declarations in code that workers wrote last, by the name of the queue."""
        store = await self._client.store()
        return [from_document(each) for each in await store.documents(KIND)]

    async def sync(self, declared: Iterable[QueueDeclaration], *, app: str) -> builtins.list[Queue]:
        """Write the queues that an app declares; return those written. Idempotent.

        Only a declaration that differs from the one written last is written, and only the
        settings that it names. The declaration is recorded after them: if the process dies in
        between, the next one writes the same settings again.
        """
        written = [await self._declare(each, app) for each in declared]
        return [each for each in written if each is not None]

    async def _declare(self, declared: QueueDeclaration, app: str) -> Queue | None:
        store = await self._client.store()
        record = await store.document(KIND, declared.name)
        before = None if record is None else from_document(record)
        if before is not None and before.settings == declared.settings:
            return None
        if before is not None and before.app != app:
            log.warning(
                "queue %s was declared by app %s, and app %s declares other settings, which are "
                "written now; declare it in one app", declared.name, before.app, app,
            )  # fmt: skip
        await store.set_queue(replace(await store.queue(declared.name), **declared.settings))
        version = None if record is None else record.version
        await store.swap(KIND, declared.name, expected=version, value=declared.to_text(app))
        log.info("queue %s declared settings=%s", declared.name, dict(declared.settings))
        return await store.queue(declared.name)

"""Queue settings and pauses."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from outlast.core.event import EventKind
from outlast.core.queue import Pause
from outlast.store.contract.notifications import Notification
from outlast.store.contract.queues import Queue
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange
from outlast.store.keyvalue.operations.base import KeyValueOperations, requires_open_store
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL = 1_000_000


class KeyValueQueueOperations(KeyValueOperations):
    """Set, read, pause and resume queues."""

    @requires_open_store
    async def set_queue(self, context: StoreContext, queue: Queue) -> None:
        """Store the settings of a queue; an existing pause stays."""

        async def work(unit: UnitOfWork) -> None:
            record = await queues.load(unit, queue.name)
            now_set = replace(queue, pause=record.queue.pause)
            queues.save(unit, replace(record, queue=now_set, is_listed=True))

        await context.run_unit(work)
        context.notify(Notification(queues=frozenset({queue.name})))

    async def queue(self, name: str) -> Queue:
        """Return a queue, with default settings if it was never set."""
        context = self._context

        async def work(unit: UnitOfWork) -> Queue:
            return (await queues.load(unit, name)).shown(context.now())

        return await context.run_unit(work)

    async def queues(self) -> list[Queue]:
        """Return all queues that were set or paused, by name."""
        context = self._context
        found = await context.engine.range(KeyRange(key_layout.QUEUE), limit=ALL)
        record = [queues.from_value(entry.value) for entry in found]
        shown = [each.shown(context.now()) for each in record if each.is_listed]
        return sorted(shown, key=lambda each: each.name)

    @requires_open_store
    async def pause(
        self, context: StoreContext, name: str, *, reason: str | None, span: timedelta | None
    ) -> None:
        """Pause a queue, for `span` or until it is resumed, and append an event.

        When it returns, no claim that does not know the pause is written or returned any more.
        """

        async def work(unit: UnitOfWork) -> None:
            record, now = await queues.load(unit, name), context.now()
            until = None if span is None else now + span
            paused = replace(record.queue, pause=Pause(at=now, reason=reason, until=until))
            queues.save(unit, replace(record, queue=paused, is_listed=True))
            detail = None if until is None else until.isoformat()
            await job_repository.append_event(
                unit, EventKind.PAUSED, at=now, reason=reason, detail=detail, queue=name
            )

        await context.run_unit(work)
        await asyncio.sleep(context.engine.limits.status_delay or 0)

    @requires_open_store
    async def resume(self, context: StoreContext, name: str) -> bool:
        """Resume a queue and append an event; return False if it is not paused."""

        async def work(unit: UnitOfWork) -> bool:
            record, now = await queues.load(unit, name), context.now()
            if record.shown(now).pause is None:
                return False
            queues.save(unit, replace(record, queue=replace(record.queue, pause=None)))
            await job_repository.append_event(unit, EventKind.RESUMED, at=now, queue=name)
            return True

        resumed = await context.run_unit(work)
        if resumed:
            context.notify(Notification(queues=frozenset({name})))
        return resumed

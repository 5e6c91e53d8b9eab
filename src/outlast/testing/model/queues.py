"""Queues of the model store."""

from dataclasses import replace
from datetime import datetime, timedelta

from outlast.core.event import EventKind, EventRecord
from outlast.core.queue import Pause, QueueGate
from outlast.store.contract.notifications import Notification
from outlast.store.contract.queues import Queue
from outlast.testing.model.base import ModelOperations
from outlast.testing.model.tables import Tables


class ModelQueueOperations(ModelOperations):
    """Queues of the model store."""

    async def set_queue(self, queue: Queue) -> None:
        """Store the settings of a queue; an existing pause stays."""
        set_queue(self._working, queue)
        self._notify(Notification(queues=frozenset({queue.name})))

    async def queue(self, name: str) -> Queue:
        """Return a queue, with default settings if it was never set."""
        return shown(self._tables.queue(name), self._clock.now())

    async def queues(self) -> list[Queue]:
        """Return all queues that were set or paused, by name."""
        return [await self.queue(name) for name in sorted(self._tables.queues)]

    async def pause(self, name: str, *, reason: str | None, span: timedelta | None) -> None:
        """Pause a queue and append an event."""
        pause(self._working, name, reason, span, self._clock.now())

    async def resume(self, name: str) -> bool:
        """Resume a queue and append an event; return False if it is not paused."""
        resumed = resume(self._working, name, self._clock.now())
        self._notify(Notification(queues=frozenset({name})))
        return resumed


def set_queue(tables: Tables, queue: Queue) -> None:
    """Store the settings; an existing pause stays."""
    tables.queues[queue.name] = replace(queue, pause=tables.queue(queue.name).pause)


def shown(queue: Queue, now: datetime) -> Queue:
    """Return the queue without a pause that has ended."""
    is_over = queue.pause is not None and queue.pause.is_over(now)
    return replace(queue, pause=None) if is_over else queue


def pause(
    tables: Tables, name: str, reason: str | None, span: timedelta | None, now: datetime
) -> None:
    """Pause the queue and append an event."""
    until = None if span is None else now + span
    paused = Pause(at=now, reason=reason, until=until)
    tables.queues[name] = replace(tables.queue(name), pause=paused)
    _record(
        tables, name, EventKind.PAUSED, now, reason, None if until is None else until.isoformat()
    )


def resume(tables: Tables, name: str, now: datetime) -> bool:
    """Resume the queue and append an event; return False if it is not paused."""
    if shown(tables.queue(name), now).pause is None:
        return False
    tables.queues[name] = replace(tables.queue(name), pause=None)
    _record(tables, name, EventKind.RESUMED, now, None, None)
    return True


def gate(tables: Tables, name: str, now: datetime) -> QueueGate:
    """Return the queue gate that a claim meets now."""
    queue = shown(tables.queue(name), now)
    running = [job_id for job_id in tables.leases if tables.jobs[job_id].queue == name]
    return QueueGate(
        is_paused=queue.pause is not None,
        concurrency=queue.concurrency,
        open_runs=len(running),
        is_reserved=tables.reservation_of(name) is not None,
    )


def _record(
    tables: Tables,
    name: str,
    kind: EventKind,
    now: datetime,
    reason: str | None,
    detail: str | None,
) -> None:
    event = EventRecord(
        id=next(tables.event_ids),
        at=now,
        job_id=None,
        run_id=None,
        kind=kind,
        token=0,
        reason=reason,
        detail=detail,
        queue=name,
    )
    tables.removed.append(event)

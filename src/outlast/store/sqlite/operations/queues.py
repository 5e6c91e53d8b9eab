"""Queues: settings, pause and resume."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from outlast.clock import from_micros
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventKind
from outlast.core.ordering import GAP, Ordering
from outlast.store.contract.queues import Queue
from outlast.store.rows import queues as queue_rows
from outlast.store.rows.jobs import require_storable
from outlast.store.sqlite.operations.base import SqliteOperations, require_open_store
from outlast.store.sqlite.writer import WriteTransaction


class SqliteQueueOperations(SqliteOperations):
    """Settings of named queues."""

    async def set_queue(self, queue: Queue) -> None:
        """Create or change a queue; its pause stays as it is."""
        await self._writer.submit(set_queue, [queue])

    async def queue(self, name: str) -> Queue:
        """Return the queue as set, or its defaults."""
        found = await self._reader.rows("queues.get", name=name)
        return queue_rows.queue(found[0], self._clock.now()) if found else Queue(name=name)

    async def queues(self) -> list[Queue]:
        """Return every queue that was set or paused, by name."""
        found = await self._reader.rows("queues.all")
        return [queue_rows.queue(row, self._clock.now()) for row in found]

    async def pause(self, name: str, *, reason: str | None, span: timedelta | None) -> None:
        """Stop claims of the queue until `resume`, or for `span`."""
        await self._writer.submit(pause, [(name, reason, span)])

    async def resume(self, name: str) -> bool:
        """End the pause; False if the queue is not paused."""
        resumed: bool = (await self._writer.submit(resume, [name]))[0]
        return resumed


@require_open_store
def set_queue(tx: WriteTransaction, queues: Sequence[Queue]) -> list[None]:
    """Write the settings of each queue and wake its workers: its capacity may have risen."""
    for queue in queues:
        values: dict[str, Any] = {"name": queue.name, "ordering": queue.ordering, "gap": queue.gap}
        tx.run("queues.set", concurrency=queue.concurrency, **values)
        tx.notify_queues.add(queue.name)
    return [None] * len(queues)


@require_open_store
def pause(
    tx: WriteTransaction, pauses: Sequence[tuple[str, str | None, timedelta | None]]
) -> list[None]:
    """Pause each queue and record the event `paused`."""
    for name, reason, span in pauses:
        require_storable([reason])
        until = None if span is None else tx.now + span // MICROSECOND
        defaults = {"ordering": Ordering.SCHEDULED, "gap": GAP}  # for a queue that was never set
        tx.run("queues.pause", name=name, reason=reason, until=until, now=tx.now, **defaults)
        detail = None if until is None else from_micros(until).isoformat()
        _record_queue_event(tx, name, EventKind.PAUSED, reason, detail)
    return [None] * len(pauses)


@require_open_store
def resume(tx: WriteTransaction, names: Sequence[str]) -> list[bool]:
    """Resume each queue that is paused."""
    return [_resume_one(tx, name) for name in names]


def _resume_one(tx: WriteTransaction, name: str) -> bool:
    if not tx.run("queues.resume", name=name, now=tx.now).rowcount:
        return False
    _record_queue_event(tx, name, EventKind.RESUMED, None, None)
    tx.notify_queues.add(name)
    return True


def _record_queue_event(
    tx: WriteTransaction, name: str, kind: EventKind, reason: str | None, detail: str | None
) -> None:
    values = {"name": name, "kind": kind, "reason": reason, "detail": detail}
    tx.run("queues.record_event", now=tx.now, **values)

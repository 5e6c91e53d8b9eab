"""Queue settings, pause and resume, and the lock of a queue."""

from collections.abc import Iterable
from datetime import timedelta

from outlast.clock import from_micros
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventKind
from outlast.core.ordering import GAP, Ordering
from outlast.store.contract.queues import Queue
from outlast.store.postgres.operations.base import PostgresOperations, require_open_store
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork, Row
from outlast.store.rows import queues as queue_rows
from outlast.store.rows.jobs import require_storable


class PostgresQueueOperations(PostgresOperations):
    """Queue settings, pause and resume."""

    async def set_queue(self, queue: Queue) -> None:
        """Write the ordering, gap and concurrency limit of a queue."""
        await self._pool.transact(require_open_store(lambda work: _set_queue(work, queue)))

    async def queue(self, name: str) -> Queue:
        """Return the settings of a queue, or the defaults if none were written."""
        found = await self._pool.rows("queues.get", name=name, now=self._now)
        return _to_queue(found[0]) if found else Queue(name=name)

    async def queues(self) -> list[Queue]:
        """Return every queue with settings, by name."""
        return [_to_queue(row) for row in await self._pool.rows("queues.all", now=self._now)]

    async def pause(self, name: str, *, reason: str | None, span: timedelta | None) -> None:
        """Pause a queue until `resume`, or for `span`."""
        await self._pool.transact(require_open_store(lambda work: _pause(work, name, reason, span)))

    async def resume(self, name: str) -> bool:
        """Resume a queue; return False if it was not paused."""
        return await self._pool.transact(require_open_store(lambda work: _resume(work, name)))


async def lock_queues(work: PostgresUnitOfWork, names: Iterable[str]) -> None:
    """Acquire the advisory locks of these queues until the transaction ends.

    No other transaction assigns positions in, or counts runs of, a locked queue. These are the
    first locks of a transaction: one that holds the lock of a group, key or job must not ask.
    """
    wanted = sorted(set(names))
    if wanted:
        await work.rows("queues.lock", names=wanted)


async def record_queue_event(
    work: PostgresUnitOfWork, name: str, kind: EventKind, reason: str | None, detail: str | None
) -> None:
    """Record an event about a queue."""
    values = {"name": name, "kind": kind, "reason": reason, "detail": detail}
    await work.run("queues.record_event", now=work.now, **values)


async def wait_for_claims(work: PostgresUnitOfWork) -> None:
    """Wait for claims in progress and block new ones until the transaction ends.

    A claim that begins later sees what this transaction has committed.
    """
    await work.run("queues.wait_for_claims")


async def _set_queue(work: PostgresUnitOfWork, queue: Queue) -> None:
    # Waits for claims in progress under the old ordering or limit.
    await lock_queues(work, [queue.name])
    if queue.concurrency is not None:
        await wait_for_claims(work)
    await work.run(
        "queues.set",
        name=queue.name,
        ordering=queue.ordering,
        gap=queue.gap,
        concurrency=queue.concurrency,
    )
    work.queues.add(queue.name)  # there may be capacity now


async def _pause(
    work: PostgresUnitOfWork, name: str, reason: str | None, span: timedelta | None
) -> None:
    require_storable([reason])
    await lock_queues(work, [name])  # a claim that holds it has read the gate
    await wait_for_claims(work)
    until = None if span is None else work.now + span // MICROSECOND
    defaults = {"ordering": Ordering.SCHEDULED, "gap": GAP}  # for a queue without settings
    await work.run("queues.pause", name=name, reason=reason, until=until, now=work.now, **defaults)
    detail = None if until is None else from_micros(until).isoformat()
    await record_queue_event(work, name, EventKind.PAUSED, reason, detail)


async def _resume(work: PostgresUnitOfWork, name: str) -> bool:
    if not await work.run("queues.resume", name=name, now=work.now):
        return False
    await record_queue_event(work, name, EventKind.RESUMED, None, None)
    work.queues.add(name)
    return True


def _to_queue(row: Row) -> Queue:
    """Return the queue at the time of the statement, which is the last column."""
    *columns, now = row
    return queue_rows.queue(tuple(columns), from_micros(now))

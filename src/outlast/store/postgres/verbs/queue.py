"""Locking queues, setting them, pausing them and letting them go on."""

from collections.abc import Iterable
from datetime import timedelta

from outlast.clock import from_micros
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventKind
from outlast.core.ordering import GAP, Ordering
from outlast.store.contract.queues import Queue
from outlast.store.postgres.unit_of_work import UnitOfWork
from outlast.store.rows.jobs import require_storable


async def lock_queues(work: UnitOfWork, names: Iterable[str]) -> None:
    """Keep everybody else from placing in, and from counting, these queues until the commit.

    The first lock of a transaction: whoever already holds a group, a key or a job may not ask.
    """
    wanted = sorted(set(names))
    if wanted:
        await work.rows("queues.lock", names=wanted)


async def set_queue(work: UnitOfWork, queue: Queue) -> None:
    # A claim under way by the old ordering or limit is waited for.
    await lock_queues(work, [queue.name])
    if queue.concurrency is not None:
        await work.run("queues.wait_for_claims")
    await work.run(
        "queues.set",
        name=queue.name,
        ordering=queue.ordering,
        gap=queue.gap,
        concurrency=queue.concurrency,
    )
    work.queues.add(queue.name)  # there may be room now


async def pause(work: UnitOfWork, name: str, reason: str | None, span: timedelta | None) -> None:
    require_storable([reason])
    until = None if span is None else work.now + span // MICROSECOND
    defaults = {"ordering": Ordering.SCHEDULED, "gap": GAP}  # if nobody has set it
    await work.run("queues.pause", name=name, reason=reason, until=until, now=work.now, **defaults)
    detail = None if until is None else from_micros(until).isoformat()
    await _record(work, name, EventKind.PAUSED, reason, detail)


async def resume(work: UnitOfWork, name: str) -> bool:
    if not await work.run("queues.resume", name=name, now=work.now):
        return False
    await _record(work, name, EventKind.RESUMED, None, None)
    work.queues.add(name)
    return True


async def _record(
    work: UnitOfWork, name: str, kind: EventKind, reason: str | None, detail: str | None
) -> None:
    values = {"name": name, "kind": kind, "reason": reason, "detail": detail}
    await work.run("queues.record_event", now=work.now, **values)

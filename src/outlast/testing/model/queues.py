"""How the model store sets, pauses and limits its queues."""

from dataclasses import replace
from datetime import datetime, timedelta

from outlast.core.event import EventKind, EventRecord
from outlast.core.queue import Pause, QueueGate
from outlast.store.contract.queues import Queue
from outlast.testing.model.tables import Tables


def set_queue(tables: Tables, queue: Queue) -> None:
    tables.queues[queue.name] = replace(queue, pause=tables.queue(queue.name).pause)


def shown(queue: Queue, now: datetime) -> Queue:
    """The queue as it stands: a pause whose time has passed is none."""
    is_over = queue.pause is not None and queue.pause.is_over(now)
    return replace(queue, pause=None) if is_over else queue


def pause(
    tables: Tables, name: str, reason: str | None, span: timedelta | None, now: datetime
) -> None:
    until = None if span is None else now + span
    paused = Pause(at=now, reason=reason, until=until)
    tables.queues[name] = replace(tables.queue(name), pause=paused)
    _record(
        tables, name, EventKind.PAUSED, now, reason, None if until is None else until.isoformat()
    )


def resume(tables: Tables, name: str, now: datetime) -> bool:
    if shown(tables.queue(name), now).pause is None:
        return False
    tables.queues[name] = replace(tables.queue(name), pause=None)
    _record(tables, name, EventKind.RESUMED, now, None, None)
    return True


def gate(tables: Tables, name: str, now: datetime) -> QueueGate:
    """What a claim of that queue meets now."""
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

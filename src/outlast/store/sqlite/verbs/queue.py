"""Setting queues, pausing them and letting them go on."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from outlast.clock import from_micros
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventKind
from outlast.core.ordering import GAP, Ordering
from outlast.store.contract.queues import Queue
from outlast.store.rows.jobs import require_storable
from outlast.store.sqlite.verbs.footing import require_open_store
from outlast.store.sqlite.writer import WriteTransaction


@require_open_store
def set_queue(work: WriteTransaction, queues: Sequence[Queue]) -> list[None]:
    for queue in queues:
        values: dict[str, Any] = {"name": queue.name, "ordering": queue.ordering, "gap": queue.gap}
        work.run("queues.set", concurrency=queue.concurrency, **values)
        work.queues.add(queue.name)  # there may be room now
    return [None] * len(queues)


@require_open_store
def pause(
    work: WriteTransaction, asked: Sequence[tuple[str, str | None, timedelta | None]]
) -> list[None]:
    for name, reason, span in asked:
        require_storable([reason])
        until = None if span is None else work.now + span // MICROSECOND
        defaults = {"ordering": Ordering.SCHEDULED, "gap": GAP}  # if nobody has set it
        work.run("queues.pause", name=name, reason=reason, until=until, now=work.now, **defaults)
        detail = None if until is None else from_micros(until).isoformat()
        _record(work, name, EventKind.PAUSED, reason, detail)
    return [None] * len(asked)


@require_open_store
def resume(work: WriteTransaction, names: Sequence[str]) -> list[bool]:
    return [_resume(work, name) for name in names]


def _resume(work: WriteTransaction, name: str) -> bool:
    if not work.run("queues.resume", name=name, now=work.now).rowcount:
        return False
    _record(work, name, EventKind.RESUMED, None, None)
    work.queues.add(name)
    return True


def _record(
    work: WriteTransaction, name: str, kind: EventKind, reason: str | None, detail: str | None
) -> None:
    values = {"name": name, "kind": kind, "reason": reason, "detail": detail}
    work.run("queues.record", now=work.now, **values)

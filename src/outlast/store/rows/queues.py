"""Mapper from rows to queues."""

from datetime import datetime
from typing import Any

from outlast.clock import from_micros
from outlast.core.ordering import Ordering
from outlast.core.queue import Pause
from outlast.store.contract.queues import Queue


def queue(row: tuple[Any, ...], now: datetime) -> Queue:
    """Return the queue of a row; a pause that has expired by `now` is None."""
    name, ordering, gap, concurrency, *paused = row
    return Queue(
        name=name,
        ordering=Ordering(ordering),
        gap=gap,
        concurrency=concurrency,
        pause=_pause(now, *paused),
    )


def _pause(now: datetime, at: int | None, reason: str | None, until: int | None) -> Pause | None:
    if at is None:
        return None
    end = None if until is None else from_micros(until)
    pause = Pause(at=from_micros(at), reason=reason, until=end)
    return None if pause.is_over(now) else pause

"""What there is to tidy, without reading what is in order."""

import asyncio
from collections.abc import Collection
from datetime import timedelta
from typing import Final

from holdfast.clock import micros
from holdfast.core.worker import TREE
from holdfast.store.keyvalue import groups, jobs, layout, queues, workers
from holdfast.store.keyvalue.desk import Desk
from holdfast.store.keyvalue.locks import Locks
from holdfast.store.keyvalue.port import Span
from holdfast.store.keyvalue.unit import Unit
from holdfast.store.upkeep import Chores

ALL: Final = 1_000_000


async def chores(desk: Desk, locks: Locks, *, abandoned: timedelta) -> Chores:
    """A few short ranges, at once: one of each kind, and one for each queue."""
    late = Span(layout.DEADLINE, end=layout.number(micros(desk.now())))
    old = Span(groups.FILLING, end=layout.number(micros(desk.now() - abandoned)))
    lapsed, overdue, held, closing, filling, deserted = await asyncio.gather(
        _has_lapsed(desk),
        _is_any(desk, late),
        _is_held(desk),
        _is_any(desk, Span(groups.CLOSING)),
        _is_any(desk, old),
        _is_deserted(desk, locks),
    )
    return Chores(
        lapsed=lapsed, overdue=overdue, held=held, groups=closing or filling, deserted=deserted
    )


async def _is_any(desk: Desk, span: Span) -> bool:
    return bool(await desk.engine.range(span, limit=1))


async def _has_lapsed(desk: Desk) -> bool:
    unit = Unit(desk.engine)
    names = await queues.names(unit)
    return any(await asyncio.gather(*(jobs.over(unit, desk, name, limit=1) for name in names)))


async def _is_held(desk: Desk) -> bool:
    found = await desk.engine.range(Span(layout.QUEUE), limit=ALL)
    return any("reservation" in entry.value for entry in found)


async def _is_deserted(desk: Desk, locks: Locks) -> bool:
    """Whether somebody has runs of whom nobody is left; asked of those on the list of workers."""
    listed = [worker for worker in await workers.listed(desk) if worker.stopped_at is None]
    trees = {worker.boot_id for worker in listed if worker.boot_id.startswith(TREE)}
    gone = await locks.deserted(trees)
    return bool(gone) and await _has_runs(desk, locks, gone)


async def _has_runs(desk: Desk, locks: Locks, gone: Collection[str]) -> bool:
    unit = Unit(desk.engine)
    found = [await queues.open_entries(unit, name, limit=ALL) for name in await queues.names(unit)]
    holding = {entry.value["boot"] for entries in found for entry in entries}
    locks.bury(set(gone) - holding)
    return bool(holding.intersection(gone))

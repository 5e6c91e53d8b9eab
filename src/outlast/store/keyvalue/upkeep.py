"""What there is to tidy, without reading what is in order."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

from outlast.clock import micros
from outlast.core.worker import TREE
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import Desk
from outlast.store.keyvalue.engine import Entry, Span
from outlast.store.keyvalue.locks import Locks
from outlast.store.keyvalue.operations import jobs
from outlast.store.keyvalue.repositories import groups, queues
from outlast.store.keyvalue.unit_of_work import Unit
from outlast.store.upkeep import Chores

ALL: Final = 1_000_000


async def chores(desk: Desk, locks: Locks, *, abandoned: timedelta) -> Chores:
    """A few short ranges: one of each kind, then one for each queue."""
    late, old = micros(desk.now()), micros(desk.now() - abandoned)
    names, queued, overdue, closing, filling, listed = await desk.engine.ranges(
        [
            (Span(key_layout.QUEUE_NAME), ALL),
            (Span(key_layout.QUEUE), ALL),
            (Span(key_layout.DEADLINE, end=key_layout.number(late)), 1),
            (Span(groups.CLOSING), 1),
            (Span(groups.FILLING, end=key_layout.number(old)), 1),
            (Span(key_layout.WORKER), ALL),
        ]
    )
    over = [span for entry in names for span in jobs.over(desk, entry.value["name"])]
    lapsed = await desk.engine.ranges([(span, 1) for span in over]) if over else []
    return Chores(
        lapsed=any(lapsed),
        overdue=bool(overdue),
        held=any("reservation" in entry.value for entry in queued),
        groups=bool(closing or filling),
        deserted=await _is_deserted(desk, locks, listed),
    )


async def _is_deserted(desk: Desk, locks: Locks, listed: Sequence[Entry]) -> bool:
    """Whether somebody has runs of whom nobody is left; asked of those on the list of workers."""
    boots = {entry.value["boot_id"] for entry in listed if "stopped_at" not in entry.value}
    trees = {boot for boot in boots if boot.startswith(TREE)}
    gone = await locks.deserted(trees)
    return bool(gone) and await _has_runs(desk, locks, gone)


async def _has_runs(desk: Desk, locks: Locks, gone: Collection[str]) -> bool:
    unit = Unit(desk.engine)
    found = [await queues.open_entries(unit, name, limit=ALL) for name in await queues.names(unit)]
    holding = {entry.value["boot"] for entries in found for entry in entries}
    locks.bury(set(gone) - holding)
    return bool(holding.intersection(gone))

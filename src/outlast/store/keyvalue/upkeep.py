"""What there is to tidy, without reading what is in order."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

from outlast.clock import to_micros
from outlast.core.worker import SUPERVISED_BOOT_PREFIX
from outlast.store.contract.maintenance import MaintenanceDue
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange, StoredItem
from outlast.store.keyvalue.locks import Locks
from outlast.store.keyvalue.operations import jobs
from outlast.store.keyvalue.repositories import groups, queues
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL: Final = 1_000_000


async def chores(desk: StoreContext, locks: Locks, *, abandoned: timedelta) -> MaintenanceDue:
    """A few short ranges: one of each kind, then one for each queue."""
    late, old = to_micros(desk.now()), to_micros(desk.now() - abandoned)
    names, queued, overdue, closing, filling, listed = await desk.engine.ranges(
        [
            (KeyRange(key_layout.QUEUE_NAME), ALL),
            (KeyRange(key_layout.QUEUE), ALL),
            (KeyRange(key_layout.DEADLINE, end=key_layout.number(late)), 1),
            (KeyRange(groups.CLOSING), 1),
            (KeyRange(groups.FILLING, end=key_layout.number(old)), 1),
            (KeyRange(key_layout.WORKER), ALL),
        ]
    )
    over = [
        span for entry in names for span in jobs.expired_lease_ranges(desk, entry.value["name"])
    ]
    lapsed = await desk.engine.ranges([(span, 1) for span in over]) if over else []
    return MaintenanceDue(
        expired_leases=any(lapsed),
        missed_deadlines=bool(overdue),
        reservations=any("reservation" in entry.value for entry in queued),
        groups=bool(closing or filling),
        dead_workers=await _is_deserted(desk, locks, listed),
    )


async def _is_deserted(desk: StoreContext, locks: Locks, listed: Sequence[StoredItem]) -> bool:
    """Whether somebody has runs of whom nobody is left; asked of those on the list of workers."""
    boots = {entry.value["boot_id"] for entry in listed if "stopped_at" not in entry.value}
    trees = {boot for boot in boots if boot.startswith(SUPERVISED_BOOT_PREFIX)}
    gone = await locks.known_dead(trees)
    return bool(gone) and await _has_runs(desk, locks, gone)


async def _has_runs(desk: StoreContext, locks: Locks, gone: Collection[str]) -> bool:
    unit = UnitOfWork(desk.engine)
    found = [await queues.open_entries(unit, name, limit=ALL) for name in await queues.names(unit)]
    holding = {entry.value["boot"] for entries in found for entry in entries}
    locks.mark_released(set(gone) - holding)
    return bool(holding.intersection(gone))

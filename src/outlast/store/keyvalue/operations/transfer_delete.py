"""Deleting what the store that fills this one has no more."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from outlast.core.job import DedupeKey
from outlast.store.contract.transfer import TableKind
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key
from outlast.store.keyvalue.repair import forget
from outlast.store.keyvalue.repositories import (
    groups,
    queues,
    reservations,
    schedules,
)
from outlast.store.keyvalue.repositories import (
    jobs as job_repository,
)
from outlast.store.keyvalue.unit_of_work import UnitOfWork

Values = dict[str, Any]
Drop = Callable[[UnitOfWork, Values], Awaitable[None]]


async def drop(desk: StoreContext, kind: TableKind, key: Values) -> None:
    """Have no row of that key, with all that goes with it."""
    if kind in _DROPS:
        await desk.run_unit(partial(_dropped, step=_DROPS[kind], key=key))


def record_key(v: Values) -> Key:
    return Key(key_layout.record_part(v["kind"]), key_layout.key_safe(v["key"]))


async def _dropped(unit: UnitOfWork, *, step: Drop, key: Values) -> None:
    await step(unit, key)


async def _drop_queue(unit: UnitOfWork, key: Values) -> None:
    kept = await queues.load(unit, key["name"])
    if kept.reservation is None:
        unit.delete(queues.key(key["name"]))
    else:
        queues.save(
            unit, replace(kept, queue=queues.QueueRecord(queue=kept.queue).queue, is_listed=False)
        )


async def _drop_group(unit: UnitOfWork, key: Values) -> None:
    value = await unit.get(Key(key_layout.GROUP, key_layout.number(key["seq"])))
    kept = None if value is None else groups.from_value(value)
    if kept is not None and kept.present == 0:  # not before its members
        groups.save(unit, kept, None)


async def _drop_key(unit: UnitOfWork, key: Values) -> None:
    if key["scope"] == "active":
        unit.delete(key_layout.active_key(key["key"]))
    else:
        unit.delete(key_layout.dedupe_key(DedupeKey(key=key["key"], bucket=key["bucket"])))


async def _drop_schedule(unit: UnitOfWork, key: Values) -> None:
    there = await schedules.load(unit, key["id"])
    if there is not None:
        schedules.save(unit, there, None)


async def _drop_record(unit: UnitOfWork, key: Values) -> None:
    unit.delete(record_key(key))


async def _drop_job(unit: UnitOfWork, key: Values) -> None:
    """With its runs and events, as when it is pruned."""
    there = await unit.get(key_layout.seq_key(key["seq"]))
    kept = None if there is None else await job_repository.load(unit, there["id"])
    if kept is None:
        return
    await forget(unit, kept)
    group = None if kept.member is None else await groups.load(unit, kept.member)
    if group is not None:
        left = group.left - int(not kept.job.is_final)
        groups.save(unit, group, replace(group, present=group.present - 1, left=left))


async def _drop_event(unit: UnitOfWork, key: Values) -> None:
    there = await unit.get(key_layout.stream_key(key["id"]))
    if there is not None:
        unit.delete(key_layout.stream_key(key["id"]))
        unit.delete(key_layout.event_key(there.get("job_id"), key["id"]))


async def _drop_reservation(unit: UnitOfWork, key: Values) -> None:
    kept = await reservations.load(unit, key["seq"])
    if kept is not None:
        reservations.forget(unit, kept)


_DROPS: Final[dict[TableKind, Drop]] = {
    TableKind.QUEUES: _drop_queue,
    TableKind.GROUPS: _drop_group,
    TableKind.KEYS: _drop_key,
    TableKind.SCHEDULES: _drop_schedule,
    TableKind.RECORDS: _drop_record,
    TableKind.JOBS: _drop_job,
    TableKind.EVENTS: _drop_event,
    TableKind.RESERVATIONS: _drop_reservation,
}
"""Slots are kept for ever, runs go with their jobs, and counters only rise."""

"""Delete rows that the source of a transfer no longer has."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from outlast.core.job import DedupeKey
from outlast.store.contract.transfer import TableKind
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key
from outlast.store.keyvalue.operations.pruning import delete_job
from outlast.store.keyvalue.repositories import (
    groups,
    key_windows,
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


async def drop(context: StoreContext, kind: TableKind, key: Values) -> None:
    """Delete the row of that key, with all that belongs to it."""
    if kind in _DROPS:
        await context.run_unit(partial(_dropped, step=_DROPS[kind], key=key))


def document_key(v: Values) -> Key:
    """Return the key of a document."""
    return Key(key_layout.record_part(v["kind"]), key_layout.key_safe(v["key"]))


async def _dropped(unit: UnitOfWork, *, step: Drop, key: Values) -> None:
    await step(unit, key)


async def _drop_queue(unit: UnitOfWork, key: Values) -> None:
    record = await queues.load(unit, key["name"])
    if record.reservation is None:
        unit.delete(queues.key(key["name"]))
    else:
        queues.save(
            unit,
            replace(record, queue=queues.QueueRecord(queue=record.queue).queue, is_listed=False),
        )


async def _drop_group(unit: UnitOfWork, key: Values) -> None:
    value = await unit.get(Key(key_layout.GROUP, key_layout.number(key["seq"])))
    record = None if value is None else groups.from_value(value)
    if record is not None and record.present == 0:  # only after its members
        groups.save(unit, record, None)


async def _drop_key(unit: UnitOfWork, key: Values) -> None:
    if key["scope"] == "active":
        unit.delete(key_layout.active_key(key["key"]))
    elif key["scope"] in ("window", "debounce"):
        held = await key_windows.load(unit, key_windows.place_of(key))
        key_windows.save(unit, held, None)
    else:
        unit.delete(key_layout.dedupe_key(DedupeKey(key=key["key"], bucket=key["bucket"])))


async def _drop_schedule(unit: UnitOfWork, key: Values) -> None:
    there = await schedules.load(unit, key["id"])
    if there is not None:
        schedules.save(unit, there, None)


async def _drop_record(unit: UnitOfWork, key: Values) -> None:
    unit.delete(document_key(key))


async def _drop_job(unit: UnitOfWork, key: Values) -> None:
    """Delete the job with its runs and events, as a prune does."""
    there = await unit.get(key_layout.seq_key(key["seq"]))
    record = None if there is None else await job_repository.load(unit, there["id"])
    if record is None:
        return
    await delete_job(unit, record)
    group = None if record.member is None else await groups.load(unit, record.member)
    if group is not None:
        left = group.left - int(not record.job.is_final)
        groups.save(unit, group, replace(group, present=group.present - 1, left=left))


async def _drop_event(unit: UnitOfWork, key: Values) -> None:
    there = await unit.get(key_layout.stream_key(key["id"]))
    if there is not None:
        unit.delete(key_layout.stream_key(key["id"]))
        unit.delete(key_layout.event_key(there.get("job_id"), key["id"]))


async def _drop_reservation(unit: UnitOfWork, key: Values) -> None:
    record = await reservations.load(unit, key["seq"])
    if record is not None:
        reservations.forget(unit, record)


_DROPS: Final[dict[TableKind, Drop]] = {
    TableKind.QUEUES: _drop_queue,
    TableKind.GROUPS: _drop_group,
    TableKind.KEYS: _drop_key,
    TableKind.SCHEDULES: _drop_schedule,
    TableKind.DOCUMENTS: _drop_record,
    TableKind.JOBS: _drop_job,
    TableKind.EVENTS: _drop_event,
    TableKind.RESERVATIONS: _drop_reservation,
}
"""Slots stay for ever, runs go with their jobs, and counters only rise."""

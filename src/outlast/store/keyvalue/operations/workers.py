"""Worker registry."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from outlast.core.run import LeaseHolder
from outlast.core.worker import Topology, WorkerInfo, WorkerRecord
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.clocks import LeaseExpiry
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import DamagedValue, Key, KeyRange, Value
from outlast.store.keyvalue.operations.base import KeyValueOperations
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL = 1_000_000
_LISTS = ("queues", "types", "schedules")
_TIMES = ("started_at", "seen_at", "stopped_at")


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """A registered worker, and when its last heartbeat expires."""

    record: WorkerRecord
    alive: LeaseExpiry | None

    def shown(self, context: StoreContext) -> WorkerRecord:
        """Return the worker with `is_alive` as of now."""
        is_over = self.alive is None or context.leases.is_over(self.alive)
        is_alive = self.record.stopped_at is None and not is_over
        return replace(self.record, is_alive=is_alive)


class KeyValueWorkerOperations(KeyValueOperations):
    """Register, heartbeat, deregister and list workers."""

    async def register_worker(self, worker: WorkerInfo) -> None:
        """Register a worker, not alive until its first heartbeat."""
        context = self._context
        now = context.now()
        record = WorkerRecord(
            **asdict(worker), started_at=now, seen_at=now, stopped_at=None, is_alive=False
        )

        async def work(unit: UnitOfWork) -> None:
            unit.put(_key(worker.holder), _to_value(WorkerEntry(record, None)))

        await context.run_unit(work)

    async def heartbeat(
        self, holder: LeaseHolder, *, span: timedelta, is_stopping: bool = False
    ) -> bool:
        """Record a heartbeat valid for `span`; return False if the worker is not registered."""
        context = self._context

        async def work(unit: UnitOfWork) -> bool:
            stored = await _load(unit, holder)
            if stored is None or stored.record.stopped_at is not None:
                return False
            is_last = is_stopping or stored.record.is_stopping
            seen = replace(stored.record, seen_at=context.now(), is_stopping=is_last)
            unit.put(_key(holder), _to_value(WorkerEntry(seen, context.leases.end(span))))
            return True

        return await context.run_unit(work)

    async def deregister_worker(self, holder: LeaseHolder) -> None:
        """Record that the worker has stopped; no-op if it has."""
        context = self._context

        async def work(unit: UnitOfWork) -> None:
            stored = await _load(unit, holder)
            if stored is not None and stored.record.stopped_at is None:
                stopped = replace(stored.record, stopped_at=context.now())
                unit.put(_key(holder), _to_value(replace(stored, record=stopped)))

        await context.run_unit(work)

    async def workers(self) -> list[WorkerRecord]:
        """Return all registered workers, the earliest started first."""
        return await list_workers(self._context)


async def list_workers(context: StoreContext) -> list[WorkerRecord]:
    """Return all registered workers, the earliest started first."""
    found = await context.engine.range(KeyRange(key_layout.WORKER), limit=ALL)
    records = [_from_value(item.value).shown(context) for item in found]
    return sorted(records, key=lambda w: (w.started_at, w.instance_id, w.boot_id))


async def delete_old_workers(context: StoreContext, before: datetime) -> None:
    """Delete workers that stopped, or sent their last heartbeat, before that time."""
    for record in await list_workers(context):
        if _is_old(record, before):
            await context.run_unit(
                partial(_forget, context=context, holder=record.holder, before=before)
            )


async def _forget(
    unit: UnitOfWork, *, context: StoreContext, holder: LeaseHolder, before: datetime
) -> None:
    stored = await _load(unit, holder)
    if stored is not None and _is_old(stored.shown(context), before):
        unit.delete(_key(holder))


def _is_old(record: WorkerRecord, before: datetime) -> bool:
    return (record.stopped_at or record.seen_at) < before and not record.is_alive


async def _load(unit: UnitOfWork, holder: LeaseHolder) -> WorkerEntry | None:
    value = await unit.get(_key(holder))
    return None if value is None or isinstance(value, DamagedValue) else _from_value(value)


def _key(holder: LeaseHolder) -> Key:
    names = f"{key_layout.key_safe(holder.instance_id)}#{key_layout.key_safe(holder.boot_id)}"
    return Key(key_layout.WORKER, key_layout.key_safe(names))


def _to_value(stored: WorkerEntry) -> dict[str, Any]:
    value = asdict(stored.record) | {name: list(getattr(stored.record, name)) for name in _LISTS}
    times = {name: getattr(stored.record, name) for name in _TIMES}
    value |= {name: moment and key_layout.time_key(moment) for name, moment in times.items()}
    value |= {"topology": stored.record.topology.value, "is_alive": False}
    value |= {
        "alive_at": stored.alive and stored.alive.at,
        "alive_boot": stored.alive and stored.alive.boot,
    }
    return {name: each for name, each in value.items() if each is not None}


def _from_value(value: Value) -> WorkerEntry:
    own = {name: each for name, each in value.items() if not name.startswith("alive_")}
    own |= {name: tuple(own[name]) for name in _LISTS}
    own |= {name: key_layout.from_time_key(own[name]) if name in own else None for name in _TIMES}
    own["topology"] = Topology(own["topology"])
    alive = LeaseExpiry(value["alive_at"], value["alive_boot"]) if "alive_at" in value else None
    return WorkerEntry(WorkerRecord(**own), alive)

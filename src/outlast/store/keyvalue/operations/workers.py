"""The list of workers."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from outlast.core.run import LeaseHolder
from outlast.core.worker import Topology, WorkerInfo, WorkerRecord
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, Value
from outlast.store.keyvalue.leases import LeaseExpiry
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL = 1_000_000
_LISTS = ("queues", "types")
_TIMES = ("started_at", "seen_at", "stopped_at")


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """A worker as last heard of, and until when that counts."""

    record: WorkerRecord
    alive: LeaseExpiry | None

    def shown(self, desk: StoreContext) -> WorkerRecord:
        is_over = self.alive is None or desk.leases.is_over(self.alive)
        is_alive = self.record.stopped_at is None and not is_over
        return replace(self.record, is_alive=is_alive)


async def enlist(desk: StoreContext, worker: WorkerInfo) -> None:
    """Put it on the list, not alive yet."""
    now = desk.now()
    record = WorkerRecord(
        **asdict(worker), started_at=now, seen_at=now, stopped_at=None, is_alive=False
    )

    async def work(unit: UnitOfWork) -> None:
        unit.put(_key(worker.holder), _to_value(WorkerEntry(record, None)))

    await desk.run_unit(work)


async def beat(desk: StoreContext, holder: LeaseHolder, *, span: timedelta) -> bool:
    """Note that it lives; False if it is not there to live."""

    async def work(unit: UnitOfWork) -> bool:
        kept = await _load(unit, holder)
        if kept is None or kept.record.stopped_at is not None:
            return False
        seen = replace(kept.record, seen_at=desk.now())
        unit.put(_key(holder), _to_value(WorkerEntry(seen, desk.leases.end(span))))
        return True

    return await desk.run_unit(work)


async def retire(desk: StoreContext, holder: LeaseHolder) -> None:
    """Note that it has stopped."""

    async def work(unit: UnitOfWork) -> None:
        kept = await _load(unit, holder)
        if kept is not None and kept.record.stopped_at is None:
            stopped = replace(kept.record, stopped_at=desk.now())
            unit.put(_key(holder), _to_value(replace(kept, record=stopped)))

    await desk.run_unit(work)


async def listed(desk: StoreContext) -> list[WorkerRecord]:
    """The list as it stands now."""
    found = await desk.engine.range(KeyRange(key_layout.WORKER), limit=ALL)
    records = [_from_value(entry.value).shown(desk) for entry in found]
    return sorted(records, key=lambda w: (w.started_at, w.instance_id, w.boot_id))


async def forget(desk: StoreContext, before: datetime) -> None:
    """Drop whoever stopped, or fell silent, before that."""
    for record in await listed(desk):
        if _is_old(record, before):
            await desk.run_unit(partial(_forget, desk=desk, holder=record.holder, before=before))


async def _forget(
    unit: UnitOfWork, *, desk: StoreContext, holder: LeaseHolder, before: datetime
) -> None:
    kept = await _load(unit, holder)
    if kept is not None and _is_old(kept.shown(desk), before):
        unit.delete(_key(holder))


def _is_old(record: WorkerRecord, before: datetime) -> bool:
    return (record.stopped_at or record.seen_at) < before and not record.is_alive


async def _load(unit: UnitOfWork, holder: LeaseHolder) -> WorkerEntry | None:
    value = await unit.get(_key(holder))
    return None if value is None else _from_value(value)


def _key(holder: LeaseHolder) -> Key:
    names = f"{key_layout.key_safe(holder.instance_id)}#{key_layout.key_safe(holder.boot_id)}"
    return Key(key_layout.WORKER, key_layout.key_safe(names))


def _to_value(kept: WorkerEntry) -> dict[str, Any]:
    value = asdict(kept.record) | {name: list(getattr(kept.record, name)) for name in _LISTS}
    times = {name: getattr(kept.record, name) for name in _TIMES}
    value |= {name: moment and key_layout.time_key(moment) for name, moment in times.items()}
    value |= {"topology": kept.record.topology.value, "is_alive": False}
    value |= {
        "alive_at": kept.alive and kept.alive.at,
        "alive_boot": kept.alive and kept.alive.boot,
    }
    return {name: each for name, each in value.items() if each is not None}


def _from_value(value: Value) -> WorkerEntry:
    own = {name: each for name, each in value.items() if not name.startswith("alive_")}
    own |= {name: tuple(own[name]) for name in _LISTS}
    own |= {name: key_layout.at_stamp(own[name]) if name in own else None for name in _TIMES}
    own["topology"] = Topology(own["topology"])
    alive = LeaseExpiry(value["alive_at"], value["alive_boot"]) if "alive_at" in value else None
    return WorkerEntry(WorkerRecord(**own), alive)

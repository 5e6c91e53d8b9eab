"""Queue records: codec, load and save, gate, positions and the queue-name index."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from outlast.clock import EPOCH
from outlast.core.ordering import Ordering, next_position
from outlast.core.queue import Pause, QueueGate
from outlast.store.contract.queues import Queue
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import DamagedValue, Key, KeyRange, StoredItem, Value, Write
from outlast.store.keyvalue.unit_of_work import PendingIntent, ReadConflict, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """A queue's settings, and its current condition.

    `is_listed`: it was set or paused, not only used. `reservation` is the number of the active one,
    `reserved_for` its job. `plan` names an intent of positions still to be written. With `damage`
    the record does not parse: the queue counts as paused, and `save` refuses to overwrite it.
    """

    queue: Queue
    is_listed: bool = False
    reservation: int | None = None
    reserved_for: str | None = None
    plan: str | None = None
    damage: DamagedValue | None = None

    def shown(self, now: datetime) -> Queue:
        """Return the queue without a pause that has ended."""
        pause = self.queue.pause
        is_over = pause is not None and pause.is_over(now)
        return replace(self.queue, pause=None) if is_over else self.queue

    @property
    def needs_serial_claims(self) -> bool:
        """True if claims must go one at a time."""
        return self.queue.concurrency is not None or self.reservation is not None


def key(name: str) -> Key:
    """Return the key of a queue's record."""
    return Key(key_layout.QUEUE, key_layout.key_safe(name))


async def load(unit: UnitOfWork, name: str) -> QueueRecord:
    """Return the queue's record, or defaults; raise PendingIntent if a plan is pending."""
    return _sound(name, await unit.get(key(name)))


def span(name: str) -> KeyRange:
    """Return the key range of the record, to read it among others; `found` takes the result."""
    part, sort = key(name)
    return KeyRange(part, sort, f"{sort}\0")


def found(name: str, entries: Sequence[StoredItem]) -> QueueRecord:
    """Return the record from the result of a read of `span`."""
    return _sound(name, entries[0].value if entries else None)


def _sound(name: str, value: Value | None) -> QueueRecord:
    if isinstance(value, DamagedValue):
        return damaged(name, value)
    if value is not None and "plan" in value:
        raise PendingIntent(Key(key_layout.PENDING, value["plan"]))
    return QueueRecord(queue=Queue(name=name)) if value is None else from_value(value)


def damaged(name: str, value: DamagedValue) -> QueueRecord:
    """Return the record of a queue whose settings do not parse: nothing is claimed from it."""
    pause = Pause(at=EPOCH, reason=f"its record is damaged: {value.why}")
    return QueueRecord(queue=Queue(name=name, pause=pause), is_listed=True, damage=value)


def save(unit: UnitOfWork, record: QueueRecord) -> None:
    """Write the record; also unchanged, to conflict with concurrent units of work."""
    if record.damage is not None:
        record.damage.refuse()
    unit.put(key(record.queue.name), to_value(record))


def to_value(record: QueueRecord) -> Value:
    """Return the stored value of a queue."""
    queue, pause = record.queue, record.queue.pause
    value: dict[str, Any] = {
        "name": queue.name,
        "ordering": queue.ordering.value,
        "gap": queue.gap,
        "concurrency": queue.concurrency,
        "paused_at": pause and key_layout.time_key(pause.at),
        "pause_reason": pause and pause.reason,
        "paused_until": key_layout.time_key(pause.until) if pause and pause.until else None,
        "is_listed": record.is_listed,
        "reservation": record.reservation,
        "reserved_for": record.reserved_for,
        "plan": record.plan,
    }
    return {name: each for name, each in value.items() if each is not None}


def from_value(value: Value) -> QueueRecord:
    """Return the queue record of a stored value."""
    queue = Queue(
        name=value["name"],
        ordering=Ordering(value["ordering"]),
        gap=value["gap"],
        concurrency=value.get("concurrency"),
        pause=_pause(value),
    )
    return QueueRecord(
        queue=queue,
        is_listed=value["is_listed"],
        reservation=value.get("reservation"),
        reserved_for=value.get("reserved_for"),
        plan=value.get("plan"),
    )


def _pause(value: Value) -> Pause | None:
    if "paused_at" not in value:
        return None
    until = value.get("paused_until")
    return Pause(
        at=key_layout.from_time_key(value["paused_at"]),
        reason=value.get("pause_reason"),
        until=key_layout.from_time_key(until) if until else None,
    )


async def gate(unit: UnitOfWork, record: QueueRecord, now: datetime) -> QueueGate:
    """Return the queue gate; counts open runs up to the queue's limit."""
    limit = record.queue.concurrency
    running = [] if limit is None else await open_entries(unit, record.queue.name, limit=limit)
    if len({entry.value["id"] for entry in running}) < len(running):
        raise ReadConflict  # a lease was renewed meanwhile, so its run was read twice
    return QueueGate(
        is_paused=record.shown(now).pause is not None,
        concurrency=limit,
        open_runs=len(running),
        is_reserved=record.reservation is not None,
    )


async def open_entries(unit: UnitOfWork, name: str, *, limit: int) -> list[StoredItem]:
    """Return index entries of open runs."""
    return await unit.range(KeyRange(key_layout.OPEN + name), limit=limit)


async def new_position(unit: UnitOfWork, name: str, priority: int) -> int:
    """Return the position of a new job: behind the waiting ones, or 0 without positions."""
    record = await load(unit, name)
    if record.queue.ordering is Ordering.SCHEDULED:
        return 0
    save(unit, record)
    return next_position((await ends(unit, name, priority))[1], record.queue.gap)


async def ends(unit: UnitOfWork, name: str, priority: int) -> tuple[int | None, int | None]:
    """Return the lowest and the highest position of the waiting jobs of that priority."""
    spans = [
        key_layout.lane(part + name, priority) for part in (key_layout.READY, key_layout.LATER)
    ]
    first = [await unit.range(span, limit=1) for span in spans]
    last = [await unit.range(span, limit=1, reverse=True) for span in spans]
    low = [entry.value["position"] for entries in first for entry in entries]
    high = [entry.value["position"] for entries in last for entry in entries]
    return min(low, default=None), max(high, default=None)


async def names(unit: UnitOfWork) -> list[str]:
    """Return all queues that ever had a job."""
    found = await unit.range(KeyRange(key_layout.QUEUE_NAME), limit=1_000_000)
    return [entry.value["name"] for entry in found]


async def register_queue(context: StoreContext, name: str) -> None:
    """Write the queue name to its index before the first job; at most once per process."""
    if name not in context.registered_queues:
        key = Key(key_layout.QUEUE_NAME, name)
        await context.engine.transact({key: None}, [Write(key, {"name": name})])
        context.registered_queues.add(name)

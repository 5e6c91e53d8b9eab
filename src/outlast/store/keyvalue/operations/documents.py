"""Records: small documents, each written only by whoever knows its last version."""

from datetime import datetime
from typing import Any

from outlast.clock import MICROSECOND
from outlast.core.document import Document, Swap, check_swap
from outlast.core.limits import is_storable
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, Value
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL = 1_000_000


async def record(desk: StoreContext, kind: str, key: str) -> Document | None:
    if not (is_storable(kind) and is_storable(key)):
        return None
    [entry] = await desk.engine.get([_key(kind, key)])
    return None if entry is None else from_value(entry.value)


async def records(desk: StoreContext, kind: str) -> list[Document]:
    """All of one kind, by key: long keys are stored by their digest, so they are sorted here."""
    found = await desk.engine.range(KeyRange(key_layout.record_part(kind)), limit=ALL)
    return sorted((from_value(entry.value) for entry in found), key=lambda each: each.key)


async def swap(desk: StoreContext, wish: Swap) -> Document | None:
    """Write, create or delete, if what is there is what was expected."""
    check_swap(wish)
    version = await desk.numbers(1)

    async def work(unit: UnitOfWork) -> Document | None:
        value = await unit.get(_key(wish.kind, wish.key))
        there = None if value is None else from_value(value)
        if (there and there.version) != wish.expected:
            return None
        if wish.value is None:
            unit.delete(_key(wish.kind, wish.key))
            return there
        written = _written(wish, wish.value, there, version, desk.now())
        unit.put(_key(wish.kind, wish.key), to_value(written))
        return written

    return await desk.run_unit(work)


def _written(
    wish: Swap, value: str, there: Document | None, version: int, now: datetime
) -> Document:
    return Document(
        kind=wish.kind,
        key=wish.key,
        value=value,
        version=version,
        created_at=there.created_at if there else now,
        updated_at=max(now, there.updated_at + MICROSECOND) if there else now,
    )


def _key(kind: str, key: str) -> Key:
    return Key(key_layout.record_part(kind), key_layout.key_safe(key))


def to_value(record: Document) -> dict[str, Any]:
    return {
        "kind": record.kind,
        "key": record.key,
        "value": record.value,
        "version": record.version,
        "created_at": key_layout.time_key(record.created_at),
        "updated_at": key_layout.time_key(record.updated_at),
    }


def from_value(value: Value) -> Document:
    return Document(
        kind=value["kind"],
        key=value["key"],
        value=value["value"],
        version=value["version"],
        created_at=key_layout.at_stamp(value["created_at"]),
        updated_at=key_layout.at_stamp(value["updated_at"]),
    )

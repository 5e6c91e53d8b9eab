"""Small versioned documents, written by compare-and-swap."""

from datetime import datetime
from typing import Any

from outlast.clock import MICROSECOND
from outlast.core.document import Document, Swap, check_swap
from outlast.core.limits import is_storable
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, Value
from outlast.store.keyvalue.operations.base import KeyValueOperations, requires_open_store
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL = 1_000_000


class KeyValueDocumentOperations(KeyValueOperations):
    """Read documents, and write them by compare-and-swap."""

    async def document(self, kind: str, key: str) -> Document | None:
        """Return a document, or None."""
        context = self._context
        if not (is_storable(kind) and is_storable(key)):
            return None
        [entry] = await context.engine.get([_key(kind, key)])
        return None if entry is None else from_value(entry.value)

    async def documents(self, kind: str) -> list[Document]:
        """Return all documents of one kind, by key."""
        context = self._context
        found = await context.engine.range(KeyRange(key_layout.record_part(kind)), limit=ALL)
        return sorted((from_value(entry.value) for entry in found), key=lambda each: each.key)

    @requires_open_store
    async def swap(
        self, context: StoreContext, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Document | None:
        """Write, create or delete a document if its version is `expected`; None if it is not."""
        swap = check_swap(Swap(kind=kind, key=key, expected=expected, value=value))
        version = await context.numbers(1)

        async def work(unit: UnitOfWork) -> Document | None:
            stored = await unit.get(_key(kind, key))
            there = None if stored is None else from_value(stored)
            if (there and there.version) != expected:
                return None
            if value is None:
                unit.delete(_key(kind, key))
                return there
            written = _written(swap, value, there, version, context.now())
            unit.put(_key(kind, key), to_value(written))
            return written

        return await context.run_unit(work)


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


def to_value(document: Document) -> dict[str, Any]:
    """Return the stored value of a document."""
    return {
        "kind": document.kind,
        "key": document.key,
        "value": document.value,
        "version": document.version,
        "created_at": key_layout.time_key(document.created_at),
        "updated_at": key_layout.time_key(document.updated_at),
    }


def from_value(value: Value) -> Document:
    """Return the document of a stored value."""
    return Document(
        kind=value["kind"],
        key=value["key"],
        value=value["value"],
        version=value["version"],
        created_at=key_layout.from_time_key(value["created_at"]),
        updated_at=key_layout.from_time_key(value["updated_at"]),
    )

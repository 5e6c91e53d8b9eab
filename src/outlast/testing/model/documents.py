"""Documents and the event stream of the model store."""

from datetime import datetime

from outlast.clock import MICROSECOND
from outlast.core.document import Document, Swap, check_swap
from outlast.core.event import EventRecord
from outlast.testing.model.base import ModelOperations
from outlast.testing.model.tables import Tables


class ModelDocumentOperations(ModelOperations):
    """Documents of the model store."""

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        """Return events after a number, in order."""
        return stream(self._tables, after, limit)

    async def document(self, kind: str, key: str) -> Document | None:
        """Return a document, or None."""
        return self._tables.records.get((kind, key))

    async def documents(self, kind: str) -> list[Document]:
        """Return all documents of one kind, by key."""
        return listed(self._tables, kind)

    async def swap(
        self, kind: str, key: str, *, expected: int | None, value: str | None
    ) -> Document | None:
        """Write, create or delete a document if its version is `expected`; None if it is not."""
        wanted = Swap(kind=kind, key=key, expected=expected, value=value)
        return swap(self._working, wanted, self._clock.now())


def swap(tables: Tables, wanted: Swap, now: datetime) -> Document | None:
    """Write, create or delete a document if its version is as expected."""
    check_swap(wanted)
    address = wanted.kind, wanted.key
    there = tables.records.get(address)
    if (there and there.version) != wanted.expected:
        return None
    if wanted.value is None:
        return tables.records.pop(address)
    tables.records[address] = Document(
        kind=wanted.kind,
        key=wanted.key,
        value=wanted.value,
        version=next(tables.versions),
        created_at=there.created_at if there else now,
        updated_at=max(now, there.updated_at + MICROSECOND) if there else now,
    )
    return tables.records[address]


def listed(tables: Tables, kind: str) -> list[Document]:
    """Return all documents of one kind, by key."""
    found = [record for record in tables.records.values() if record.kind == kind]
    return sorted(found, key=lambda record: record.key)


def stream(tables: Tables, after: int, limit: int) -> list[EventRecord]:
    """Return all events after a number."""
    events = [*tables.removed, *(event for told in tables.events.values() for event in told)]
    return sorted((e for e in events if e.id > after), key=lambda event: event.id)[:limit]

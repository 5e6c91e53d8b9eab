"""How the model store keeps records, and everybody's events in one list."""

from datetime import datetime

from outlast.clock import MICROSECOND
from outlast.core.document import Document, Swap, check_swap
from outlast.core.event import EventRecord
from outlast.testing.model.tables import Tables


def swap(tables: Tables, wish: Swap, now: datetime) -> Document | None:
    """Write, create or delete, if what is there is what was expected."""
    check_swap(wish)
    place = wish.kind, wish.key
    there = tables.records.get(place)
    if (there and there.version) != wish.expected:
        return None
    if wish.value is None:
        return tables.records.pop(place)
    tables.records[place] = Document(
        kind=wish.kind,
        key=wish.key,
        value=wish.value,
        version=next(tables.versions),
        created_at=there.created_at if there else now,
        updated_at=max(now, there.updated_at + MICROSECOND) if there else now,
    )
    return tables.records[place]


def listed(tables: Tables, kind: str) -> list[Document]:
    """All of one kind, by key."""
    found = [record for record in tables.records.values() if record.kind == kind]
    return sorted(found, key=lambda record: record.key)


def stream(tables: Tables, after: int, limit: int) -> list[EventRecord]:
    """What was recorded of anybody, and is still there, after that id."""
    events = [*tables.removed, *(event for told in tables.events.values() for event in told)]
    return sorted((e for e in events if e.id > after), key=lambda event: event.id)[:limit]

"""Intents: log of writes that are larger than one transaction of the engine.

The transaction that decides also writes the intent. From then on the operation has happened, and
only index entries may be late. Every step compares the intent's version, so that each step is done
once and no later write is overwritten.
"""

from collections.abc import Sequence
from typing import Any, Final

from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import (
    Conditions,
    Engine,
    Key,
    KeyRange,
    StoredItem,
    Value,
    Write,
)

MANY: Final = 100
WRITES: Final = "writes"
"""Kind of the intent that lists plain writes."""

_INDEXES: Final = (
    "job-id#",
    key_layout.SEQ,
    key_layout.READY,
    key_layout.LATER,
    key_layout.OPEN,
    key_layout.DUE,
    key_layout.DEADLINE,
    key_layout.ENDED,
    key_layout.EVENT,
    "member#",
    "group-id#",
    "reservation-id#",
    "closing",
    "filling",
    "emptied",
    key_layout.ARTIFACTS,
)
"""Parts whose records may be late; those needed first come first."""


async def commit(engine: Engine, conditions: Conditions, writes: Sequence[Write]) -> bool:
    """Write what decides in one transaction, with an intent for the rest, and complete it.

    Returns False, and writes nothing, if a condition fails.
    """
    late = sorted((w for w in writes if _may_be_late(w, conditions)), key=_rank)
    first = [write for write in writes if not _may_be_late(write, conditions)]
    looked_at = conditions.keys() | {write.key for write in first}
    room = engine.limits.most_writes - len(looked_at) - 1
    assert room >= 0, f"{len(looked_at)} records must be written at once: {sorted(looked_at)}"
    intent = _key_of(first)
    body = {"kind": WRITES, "writes": [_listed(write) for write in late[room:]]}
    marked = [_marked(write, intent.sort) for write in (*first, *late[:room])]
    if not await engine.transact({**conditions, intent: None}, [*marked, Write(intent, body)]):
        return False
    await complete_writes(engine, intent)
    return True


async def complete_writes(engine: Engine, intent: Key) -> None:
    """Complete an intent of plain writes; idempotent, also with concurrent calls."""
    while True:
        [entry] = await engine.get([intent])
        if entry is None:
            return
        await _step(engine, entry)


async def _step(engine: Engine, entry: StoredItem) -> None:
    listed = entry.value["writes"]
    room = engine.limits.most_writes - 1
    rest = listed[room:]
    after = {**entry.value, "writes": rest} if rest else None
    writes = [Write(Key(part, sort), value) for part, sort, value in listed[:room]]
    await engine.transact({entry.key: entry.version}, [*writes, Write(entry.key, after)])


async def pending(engine: Engine) -> list[StoredItem]:
    """Return pending intents, also those that another process is completing."""
    return await engine.range(KeyRange(key_layout.PENDING), limit=MANY)


def _may_be_late(write: Write, conditions: Conditions) -> bool:
    is_plain = write.value is None or write.key.part.startswith(_INDEXES)
    return is_plain and write.key not in conditions


def _rank(write: Write) -> int:
    """Return the order of late writes; deletes come first, so that no read finds half a job."""
    part = write.key.part
    return next((n for n, index in enumerate(_INDEXES) if part.startswith(index)), -1)


def _key_of(writes: Sequence[Write]) -> Key:
    """Return the intent's key, named after the first job: a job has one intent at a time."""
    job = next(write for write in writes if write.key.part == key_layout.JOB)
    return Key(key_layout.PENDING, f"{WRITES}#{job.key.sort}")


def _marked(write: Write, intent: str) -> Write:
    """Mark the job with its intent, so that every read of the job finds it."""
    if write.key.part != key_layout.JOB or write.value is None:
        return write
    return Write(write.key, {**write.value, "pending": intent})


def _listed(write: Write) -> list[Any]:
    value: Value | None = write.value
    return [write.key.part, write.key.sort, None if value is None else dict(value)]


def done(intent: Key) -> Write:
    """Return the write that ends an intent."""
    return Write(intent, None)

"""Notes of what is still to be written, for engines whose transactions are small.

A note is written in the transaction that decides; from then on the work is done, and only its
index entries may be late. Every step takes the note's version with it, so that of all who do the
rest each step is done by one: nobody overwrites what came after.
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
"""The kind of note that lists plain writes."""

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
"""What can be late, those first that should not be."""


async def commit(engine: Engine, conditions: Conditions, writes: Sequence[Write]) -> bool:
    """Decide in one transaction, with a note of what did not fit, and do the rest."""
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
    """Do the rest of one note; harmless when it is done, or somebody else does it."""
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
    """Notes that somebody left, or is busy with."""
    return await engine.range(KeyRange(key_layout.PENDING), limit=MANY)


def _may_be_late(write: Write, conditions: Conditions) -> bool:
    is_plain = write.value is None or write.key.part.startswith(_INDEXES)
    return is_plain and write.key not in conditions


def _rank(write: Write) -> int:
    """Records that go come first of all: nobody should find half a job."""
    part = write.key.part
    return next((n for n, index in enumerate(_INDEXES) if part.startswith(index)), -1)


def _key_of(writes: Sequence[Write]) -> Key:
    """Named after the first job it concerns: one job has one intent at a time."""
    job = next(write for write in writes if write.key.part == key_layout.JOB)
    return Key(key_layout.PENDING, f"{WRITES}#{job.key.sort}")


def _marked(write: Write, intent: str) -> Write:
    """Whoever reads the job finds the intent."""
    if write.key.part != key_layout.JOB or write.value is None:
        return write
    return Write(write.key, {**write.value, "pending": intent})


def _listed(write: Write) -> list[Any]:
    value: Value | None = write.value
    return [write.key.part, write.key.sort, None if value is None else dict(value)]


def done(intent: Key) -> Write:
    """What ends a intent."""
    return Write(intent, None)

"""Intents: log of writes that are larger than one transaction of the engine.

The transaction that decides also writes the intent. From then on the operation has happened, and
only index entries may be late. Every step compares the intent's version, so that each step is done
once and no later write is overwritten.
"""

from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, Final

from outlast.errors import OperatorError, StoreCorrupt
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

PAGES: Final = "intent-page"
"""Part of the late writes of intents that list more than a record takes."""

_COUNTER: Final = Key("counter", PAGES)

_INDEXES: Final = (
    key_layout.BODY,
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
    key_layout.RESERVATION,
    "closing",
    "filling",
    "emptied",
    key_layout.ARTIFACTS,
)
"""Parts whose records may be late; long texts come first, so that few are in an intent."""


async def commit(
    engine: Engine, conditions: Conditions, writes: Sequence[Write], *, gate: Conditions
) -> bool:
    """Write what decides in one transaction, with an intent for the rest, and complete it.

    Returns False, and writes nothing, if a condition fails, or one of `gate`.
    """
    late = sorted((w for w in writes if _may_be_late(w, conditions)), key=_rank)
    first = [write for write in writes if not _may_be_late(write, conditions)]
    looked_at = conditions.keys() | {write.key for write in first}
    room = engine.limits.most_writes - len(looked_at) - 1
    assert room >= 0, f"{len(looked_at)} records must be written at once: {sorted(looked_at)}"
    intent = _key_of(first)
    body = {"kind": WRITES, "writes": [_listed(write) for write in late[room:]]}
    if Write(intent, body).size > _page_bytes(engine):
        room -= room > 0  # for the first page, which is compared
        body, paged = await _with_pages(engine, intent, late[room:])
        conditions = {**conditions, **paged}
    marked = [_marked(write, intent.sort) for write in (*first, *late[:room])]
    conditions = {**conditions, **gate, intent: None}
    if not await engine.transact(conditions, [*marked, Write(intent, body)]):
        return False
    await unless_store_fails(complete_writes(engine, intent))
    return True


def _page_bytes(engine: Engine) -> int:
    """Return the bytes of an intent, or of a page: half of what a record or transaction takes."""
    return min(engine.limits.most_record_bytes, engine.limits.most_bytes) // 2


async def _with_pages(
    engine: Engine, intent: Key, late: Sequence[Write]
) -> tuple[dict[str, Any], Conditions]:
    """Write pages with the late writes; return the intent that names them, and what it compares.

    Pages without their intent have no effect. `forget_pages` deletes the first of them first, which
    the intent compares.
    """
    number = await engine.advance(_COUNTER, 1)
    keys: list[Key] = []
    for page in _cut(late, _page_bytes(engine)):
        key = Key(PAGES, f"{key_layout.number(number)}#{key_layout.number(len(keys))}")
        await engine.transact({}, [Write(key, {"intent": intent.sort, "writes": page})])
        keys.append(key)
    [first] = await engine.get(keys[:1])
    body = {"kind": WRITES, "writes": [], "pages": [key.sort for key in keys]}
    return body, {keys[0]: None if first is None else first.version}


def _cut(writes: Sequence[Write], most: int) -> list[list[list[Any]]]:
    """Return the writes as an intent lists them, in pages of up to `most` bytes."""
    pages: list[list[list[Any]]] = []
    room = 0
    for write in writes:
        if not pages or write.size > room:
            pages.append([])
            room = most
        pages[-1].append(_listed(write))
        room -= write.size
    return pages


async def forget_pages(engine: Engine) -> None:
    """Delete pages whose intent was never written, because its process died or had a conflict."""
    kept = ""
    for page in await engine.range(KeyRange(PAGES), limit=MANY):
        number = page.key.sort.partition("#")[0]
        intent = Key(key_layout.PENDING, page.value["intent"])
        if number == kept:
            continue
        if not await engine.transact(
            {intent: None, page.key: page.version}, [Write(page.key, None)]
        ):
            kept = number


async def unless_store_fails(completing: Awaitable[None]) -> None:
    """Complete an intent just committed; if the store fails, the next read of it completes it.

    What the intent belongs to has happened, so its caller gets no error.
    """
    with suppress(OperatorError):
        await completing


async def complete_writes(engine: Engine, intent: Key) -> None:
    """Complete an intent of plain writes; idempotent, also with concurrent calls."""
    while True:
        [entry] = await engine.get([intent])
        if entry is None:
            return
        await _step(engine, entry)


async def _step(engine: Engine, entry: StoredItem) -> None:
    listed, pages = entry.value["writes"], entry.value.get("pages", [])
    gone: list[Write] = []
    if not listed and pages:
        listed, pages, gone = await _next_page(engine, entry)
    room = engine.limits.most_writes - 1 - len(gone)
    rest = listed[room:]
    after = {**entry.value, "writes": rest, "pages": pages} if rest or pages else None
    writes = [Write(Key(part, sort), value) for part, sort, value in listed[:room]]
    await engine.transact({entry.key: entry.version}, [*writes, *gone, Write(entry.key, after)])


async def _next_page(engine: Engine, entry: StoredItem) -> tuple[list[Any], list[str], list[Write]]:
    """Return the writes of the next page, the pages behind it, and the write that deletes it."""
    first, *pages = entry.value["pages"]
    [page] = await engine.get([Key(PAGES, first)])
    if page is not None:
        return page.value["writes"], pages, [Write(page.key, None)]
    if (await engine.get([entry.key])) != [entry]:
        return [], entry.value["pages"], []  # another process was faster, so nothing is written
    raise StoreCorrupt(f"the intent {entry.key.sort} lacks its page {first}; restore a backup")


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

"""A unit of work: what it read stays as it was until all that it writes is written, at once.

Where a transaction of the engine is too small for it, the records that count go first, together
with a note of the rest; whoever comes upon that intent does the rest (see `notes`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Final, TypeVar

from outlast.errors import StoreBusy
from outlast.store.keyvalue import intents, key_layout
from outlast.store.keyvalue.engine import Engine, Key, KeyRange, StoredItem, Value, Write

MAX_CACHED_LOCATIONS: Final = 10_000


class LocationCache:
    """Guesses: whoever reads by one compares it with what the index says, in the same request."""

    def __init__(self) -> None:
        self._sorts: dict[str, str] = {}

    def at(self, job_id: str) -> str | None:
        return self._sorts.get(job_id)

    def note(self, job_id: str, sort: str) -> None:
        self._sorts.pop(job_id, None)
        self._sorts[job_id] = sort
        if len(self._sorts) > MAX_CACHED_LOCATIONS:
            del self._sorts[next(iter(self._sorts))]


Answer = TypeVar("Answer")

TRIES: Final = 60
"""How often a unit is tried that others keep getting in the way of: some ten seconds in all."""

ALL: Final = 1_000_000
LONGEST_PAUSE: Final = 0.25
FIRST_PAUSE: Final = 0.002


Read = Mapping[Key, StoredItem | None]
"""Records as somebody has read them."""


class ReadConflict(Exception):
    """What was read cannot have been there at one moment."""


class PendingIntent(Exception):
    """Somebody left a note that must be done before this unit can be."""

    def __init__(self, intent: Key) -> None:
        super().__init__(intent)
        self.intent = intent


class UnitOfWork:
    """Reads remember versions, writes are record back, `commit` compares."""

    def __init__(self, engine: Engine, seen: LocationCache | None = None) -> None:
        self.engine = engine
        self.seen = LocationCache() if seen is None else seen
        self._read: dict[Key, StoredItem | None] = {}
        self._writes: dict[Key, Value | None] = {}
        self._required: set[Key] = set()

    async def get(self, key: Key) -> Value | None:
        """The record as this unit sees it; if it is written later, it must still be as read."""
        if key in self._writes:
            return self._writes[key]
        if key not in self._read:
            await self.fetch([key])
        entry = self._read[key]
        return None if entry is None else entry.value

    async def fetch(self, keys: Sequence[Key]) -> None:
        """Read several at once, for `get`."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._read]
        if missing:
            found = await self.engine.get(missing)
            self._read.update(zip(missing, found, strict=True))

    def take(self, read: Read) -> None:
        """Take all that for read by this unit."""
        self._read.update(read)

    def remember(self, entries: Sequence[StoredItem]) -> None:
        """Take records that were read just now for read by this unit."""
        for entry in entries:
            self._read.setdefault(entry.key, entry)

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        """The first records of a span as this unit sees them, what it has written among them."""
        own = {key: value for key, value in self._writes.items() if _is_in(key, span)}
        found = await self.engine.range(span, limit=limit + len(own), reverse=reverse)
        if not own:
            return found
        record = [entry for entry in found if entry.key not in own]
        written = [StoredItem(key, value, "") for key, value in own.items() if value is not None]
        return sorted((*record, *written), key=lambda e: e.key.sort, reverse=reverse)[:limit]

    async def ranges(self, spans: Sequence[KeyRange]) -> list[list[StoredItem]]:
        """All records of each span as this unit sees them, in as few requests as it takes."""
        if any(_is_in(key, span) for key in self._writes for span in spans):
            return [await self.range(span, limit=ALL) for span in spans]
        return await self.engine.ranges([(span, ALL) for span in spans])

    async def consistent_range(self, spans: Sequence[KeyRange], *, limit: int) -> list[StoredItem]:
        """The records of these spans as they were at one moment: read twice, or Stale.

        What moves from one key to another while it is looked for is otherwise seen twice, or not.
        """
        looks = [[e for span in spans for e in await self.range(span, limit=limit)] for _ in "12"]
        first, again = [[(entry.key, entry.version) for entry in look] for look in looks]
        if first != again:
            raise ReadConflict
        return looks[1]

    def put(self, key: Key, value: Value) -> None:
        self._writes[key] = value

    def delete(self, key: Key) -> None:
        self._writes[key] = None

    def skip_version_check(self, key: Key) -> None:
        """What was read there cannot change any more: it need not be compared."""
        self._read.pop(key, None)

    def require(self, key: Key) -> None:
        """What was read there must not have changed either, though it is not written."""
        assert key in self._read, f"{key} was never read"
        self._required.add(key)

    async def touch(self, key: Key) -> None:
        """Write it as it is: of all who build on it at once, only one goes on."""
        value = await self.get(key)
        assert value is not None, f"{key} is not there"
        self.put(key, value)

    async def next_event(self) -> int:
        """The number of the next event: of two units that take one number only one commits.

        So none becomes visible before one with a lower number.
        """
        return await self.next_number(key_layout.EVENTS)

    async def next_number(self, counter: Key = key_layout.NUMBERS) -> int:
        """A number that nobody else gets, if this unit is committed."""
        there = await self.get(counter)
        last: int = there["last"] if there else 0
        self.put(counter, {"last": last + 1})
        return last + 1

    async def is_unchanged(self, of: Sequence[Key] | None = None) -> bool:
        """Whether all that was read by key, or that part of it, is still so: then it was so at
        one moment."""
        keys = list(self._read) if of is None else list(of)
        again = await self.engine.get(keys)
        return [_version(e) for e in again] == [_version(self._read.get(key)) for key in keys]

    async def require_unchanged(self, of: Sequence[Key] | None = None) -> None:
        """For an answer that writes nothing: Stale unless what it rests on was so at one moment."""
        if not await self.is_unchanged(of):
            raise ReadConflict

    async def commit(self) -> bool:
        """Write all of it; False, and nothing, if what it is built on has changed."""
        if not self._writes:
            return True
        conditions = self._conditions()
        writes = [Write(key, value) for key, value in self._writes.items()]
        if len(conditions.keys() | self._writes.keys()) <= self.engine.limits.most_writes:
            return await self.engine.transact(conditions, writes)
        return await intents.commit(self.engine, conditions, writes)

    def _conditions(self) -> dict[Key, str | None]:
        keys = [key for key in (*self._writes, *self._required) if key in self._read]
        return {key: _version(self._read[key]) for key in keys}


def _is_in(key: Key, span: KeyRange) -> bool:
    is_before_end = span.end is None or key.sort < span.end
    return key.part == span.part and key.sort >= span.start and is_before_end


def _version(entry: StoredItem | None) -> str | None:
    return None if entry is None else entry.version


class UnitRunner:
    """Does work in units, again and again until nobody gets in its way."""

    def __init__(
        self, engine: Engine, random: Random, finish: Callable[[Key], Awaitable[None]]
    ) -> None:
        self.engine = engine
        self._seen = LocationCache()
        self._random = random
        self._finish = finish

    async def do(self, work: Callable[[UnitOfWork], Awaitable[Answer]]) -> Answer:
        """What `work` answers in the unit that was committed; StoreBusy if none could be."""
        for pause in range(TRIES):
            unit = UnitOfWork(self.engine, self._seen)
            try:
                answer = await work(unit)
                if await unit.commit():
                    return answer
            except PendingIntent as left:
                await self._finish(left.intent)
            except ReadConflict:
                pass
            await asyncio.sleep(self._pause(pause))
        raise StoreBusy(
            f"others changed the same records {TRIES} times in a row; nothing was written, "
            "so try again"
        )

    def _pause(self, number: int) -> float:
        """Full jitter, so that those who met do not meet again."""
        return self._random.uniform(0, min(LONGEST_PAUSE, FIRST_PAUSE * 2**number))

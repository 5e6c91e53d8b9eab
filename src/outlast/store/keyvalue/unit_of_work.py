"""Optimistic unit of work: reads remember versions, and the commit compares them.

A commit larger than one engine transaction writes the deciding records first, together with an
intent of the rest (see `intents`). A read that finds the intent completes it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Final, TypeVar

from outlast.errors import StoreBusy
from outlast.store.keyvalue import intents, key_layout
from outlast.store.keyvalue.engine import (
    LAST,
    Conditions,
    Engine,
    Key,
    KeyRange,
    StoredItem,
    Value,
    Write,
)
from outlast.store.keyvalue.transfer_gate import GatePass, TransferGate

MAX_CACHED_LOCATIONS: Final = 10_000


class LocationCache:
    """Cache of job record locations.

    Entries may be stale; readers fetch the pointer in the same request and compare.
    """

    def __init__(self) -> None:
        self._sorts: dict[str, str] = {}

    def at(self, job_id: str) -> str | None:
        """Return the sort key of the job's record when it was last seen, or None."""
        return self._sorts.get(job_id)

    def note(self, job_id: str, sort: str) -> None:
        """Remember the sort key of a job's record."""
        self._sorts.pop(job_id, None)
        self._sorts[job_id] = sort
        if len(self._sorts) > MAX_CACHED_LOCATIONS:
            del self._sorts[next(iter(self._sorts))]


Answer = TypeVar("Answer")

MAX_ATTEMPTS: Final = 60
"""Attempts of a unit of work that conflicts: about ten seconds in all."""

ALL: Final = 1_000_000
MAX_PAUSE_S: Final = 0.25
FIRST_PAUSE_S: Final = 0.002


Read = Mapping[Key, StoredItem | None]
"""Records as they were read."""


class ReadConflict(Exception):
    """The values read cannot have existed at one moment; the unit of work is repeated."""


class PendingIntent(Exception):
    """An intent must be completed before this unit of work can go on."""

    def __init__(self, intent: Key) -> None:
        super().__init__(intent)
        self.intent = intent


class UnitOfWork:
    """Reads remember versions, writes are buffered, `commit` compares and writes.

    `tolerated` intents cannot be completed; a unit that only reads shows their jobs as they are.
    """

    def __init__(
        self, engine: Engine, seen: LocationCache | None = None, gate: GatePass | None = None
    ) -> None:
        """Begin a unit of work. With a `gate`, it is written only while the store is open."""
        self.engine = engine
        self._gate = gate
        self.seen = LocationCache() if seen is None else seen
        self._read: dict[Key, StoredItem | None] = {}
        self._writes: dict[Key, Value | None] = {}
        self._required: set[Key] = set()
        self.tolerated: frozenset[Key] = frozenset()

    async def get(self, key: Key) -> Value | None:
        """Return the value as this unit sees it.

        If the unit writes the key later, the commit requires that it is unchanged.
        """
        if key in self._writes:
            return self._writes[key]
        if key not in self._read:
            await self.fetch([key])
        entry = self._read[key]
        return None if entry is None else entry.value

    async def fetch(self, keys: Sequence[Key]) -> None:
        """Read several keys in one request, for `get`."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._read]
        if missing:
            found = await self.engine.get(missing)
            self._read.update(zip(missing, found, strict=True))

    def take(self, read: Read) -> None:
        """Take these records as read by this unit."""
        self._read.update(read)

    def remember(self, entries: Sequence[StoredItem]) -> None:
        """Take records that were just read as read by this unit, unless it has read them."""
        for entry in entries:
            self._read.setdefault(entry.key, entry)

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        """Return the first records of a key range, this unit's own writes included."""
        own = {key: value for key, value in self._writes.items() if _is_in(key, span)}
        found = await self.engine.range(span, limit=limit + len(own), reverse=reverse)
        if not own:
            return found
        record = [entry for entry in found if entry.key not in own]
        written = [StoredItem(key, value, "") for key, value in own.items() if value is not None]
        return sorted((*record, *written), key=lambda e: e.key.sort, reverse=reverse)[:limit]

    async def ranges(self, spans: Sequence[KeyRange]) -> list[list[StoredItem]]:
        """Return all records of several key ranges, in few requests."""
        if any(_is_in(key, span) for key in self._writes for span in spans):
            return [await self.range(span, limit=ALL) for span in spans]
        return await self.engine.ranges([(span, ALL) for span in spans])

    async def consistent_range(self, spans: Sequence[KeyRange], *, limit: int) -> list[StoredItem]:
        """Return the records of key ranges at one moment: read twice, or ReadConflict."""
        looks = [[e for span in spans for e in await self.range(span, limit=limit)] for _ in "12"]
        first, again = [[(entry.key, entry.version) for entry in look] for look in looks]
        if first != again:
            raise ReadConflict
        return looks[1]

    def put(self, key: Key, value: Value) -> None:
        """Write a record at the commit."""
        self._writes[key] = value

    def delete(self, key: Key) -> None:
        """Delete a record at the commit."""
        self._writes[key] = None

    def skip_version_check(self, key: Key) -> None:
        """Leave the record out of the commit's comparison: it can no longer change."""
        self._read.pop(key, None)

    def require(self, key: Key) -> None:
        """Require at the commit that a record is unchanged, though it is not written."""
        assert key in self._read, f"{key} was never read"
        self._required.add(key)

    async def touch(self, key: Key) -> None:
        """Write a record unchanged: of several concurrent units, only one commits."""
        value = await self.get(key)
        assert value is not None, f"{key} is not there"
        self.put(key, value)

    async def raise_numbers(self, last: int) -> None:
        """Let all numbers given after the commit exceed `last`."""
        await self.get(key_layout.NUMBERS)
        if last > await self.engine.last_number(key_layout.NUMBERS):
            self.put(key_layout.NUMBERS, {LAST: last})

    async def is_unchanged(self, of: Sequence[Key] | None = None) -> bool:
        """Return True if all records read, or those of `of`, are unchanged since."""
        keys = list(self._read) if of is None else list(of)
        again = await self.engine.get(keys)
        return [_version(e) for e in again] == [_version(self._read.get(key)) for key in keys]

    async def require_unchanged(self, of: Sequence[Key] | None = None) -> None:
        """Raise ReadConflict unless the records were unchanged; for units that write nothing."""
        if not await self.is_unchanged(of):
            raise ReadConflict

    async def commit(self) -> bool:
        """Write everything atomically; return False, and write nothing, on a conflict."""
        if not self._writes:
            return True
        is_written = await self._write({} if self._gate is None else self._gate.conditions)
        if self._gate is not None:
            await self._gate.settle(is_written=is_written)
        return is_written

    async def _write(self, gate: Conditions) -> bool:
        conditions = self._conditions()
        writes = [Write(key, value) for key, value in self._writes.items()]
        if len(conditions.keys() | self._writes.keys()) <= self.engine.limits.most_writes:
            return await self.engine.transact({**conditions, **gate}, writes)
        return await intents.commit(self.engine, conditions, writes, gate=gate)

    def _conditions(self) -> dict[Key, str | None]:
        keys = [key for key in (*self._writes, *self._required) if key in self._read]
        return {key: _version(self._read[key]) for key in keys}


def _is_in(key: Key, span: KeyRange) -> bool:
    is_before_end = span.end is None or key.sort < span.end
    return key.part == span.part and key.sort >= span.start and is_before_end


def _version(entry: StoredItem | None) -> str | None:
    return None if entry is None else entry.version


class UnitRunner:
    """Runs work in units of work and repeats it on conflicts."""

    def __init__(
        self, engine: Engine, random: Random, complete: Callable[[Key], Awaitable[None]]
    ) -> None:
        self.engine = engine
        self._seen = LocationCache()
        self._random = random
        self._complete = complete

    def on(self, engine: Engine) -> "UnitRunner":
        """Return a runner on another view of the engine."""
        return UnitRunner(engine, self._random, self._complete)

    async def do(
        self,
        work: Callable[[UnitOfWork], Awaitable[Answer]],
        gate: TransferGate | None = None,
        tolerated: frozenset[Key] = frozenset(),
    ) -> Answer:
        """Return what `work` returned in the unit that committed; raise StoreBusy if none did.

        With a `gate`, nothing is written unless the store is open. Intents that are `tolerated`
        need not be completed.
        """
        for pause in range(MAX_ATTEMPTS):
            held = None if gate is None else await gate.enter()
            unit = UnitOfWork(self.engine, self._seen, held)
            unit.tolerated = tolerated
            try:
                answer = await work(unit)
                if await unit.commit():
                    return answer
            except PendingIntent as error:
                await self._complete(error.intent)
            except ReadConflict:
                pass
            await asyncio.sleep(self._pause(pause))
        raise StoreBusy(
            f"other transactions changed the same records {MAX_ATTEMPTS} times in a row; "
            "nothing was written, so try again"
        )

    def _pause(self, number: int) -> float:
        """Return a random pause (full jitter), so that rivals do not meet again."""
        return self._random.uniform(0, min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**number))

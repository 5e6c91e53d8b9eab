"""Engine that spreads the parts of jobs over shards of another engine, and merges what it reads."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil, isqrt

from outlast.store.keyvalue.engine import (
    Conditions,
    Engine,
    Key,
    KeyRange,
    Limits,
    StoredItem,
    Write,
)
from outlast.store.keyvalue.engine_wrapper import EngineWrapper
from outlast.store.keyvalue.shards import Shards


class ShardedEngine(EngineWrapper):
    """`ShardedEngine(engine, shards=8)`: keys and ranges are those of a store with one shard.

    A record lies in one shard, and a range is read from all of them and merged by sort key.
    """

    def __init__(self, engine: Engine, *, shards: int) -> None:
        super().__init__(engine)
        self._shards = Shards(shards)

    @property
    def limits(self) -> Limits:
        """Limits of the other engine."""
        return replace(self.inner.limits, shards=self._shards.count)

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        """Return records in the order of `keys`."""
        found = await self.inner.get([self._shards.stored(key) for key in keys])
        return [None if item is None else self._plain(item) for item in found]

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        """Return the first records of a key range in order, or the last ones in reverse."""
        if limit < 1:
            return []
        if not reverse:
            return (await self.ranges([(span, limit)]))[0]
        reads = [_ShardRead(own, limit, backwards=True) for own in self._shards.ranges(span)]
        return await self._merged(reads, limit)

    async def ranges(self, asked: Sequence[tuple[KeyRange, int]]) -> list[list[StoredItem]]:
        """Return the first records of each key range; the shards of all are read at once."""
        each = [self._reads(span, limit) for span, limit in asked]
        first = [read for reads in each for read in reads]
        pages = await self.inner.ranges([(read.rest, read.size) for read in first])
        for read, page in zip(first, pages, strict=True):
            read.take(page)
        merged = zip(each, asked, strict=True)
        return [await self._merged(reads, limit) for reads, (_, limit) in merged]

    async def scan(self, start: str) -> AsyncIterator[StoredItem]:
        """Yield all records of parts that begin with `start`."""
        async for item in self.inner.scan(start):
            yield self._plain(item)

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        """Write everything if all conditions hold, in one transaction."""
        stored = self._shards.stored
        return await self.inner.transact(
            {stored(key): version for key, version in conditions.items()},
            [Write(stored(write.key), write.value) for write in writes],
        )

    async def advance(self, counter: Key, by: int) -> int:
        """Add `by` to a counter and return it."""
        return await self.inner.advance(self._shards.stored(counter), by)

    async def last_number(self, counter: Key) -> int:
        """Return a number that none of those given so far exceeds."""
        return await self.inner.last_number(self._shards.stored(counter))

    def watch(
        self, parts: Sequence[str], heard: Callable[[Write], None]
    ) -> Callable[[], None] | None:
        """Call `heard` for records put into any shard of parts that begin with one of `parts`."""
        plain = self._shards.plain
        return self.inner.watch(parts, lambda w: heard(Write(plain(w.key), w.value)))

    async def describe(self) -> Mapping[str, str]:
        """Return what the other engine says, and the number of shards."""
        return {**await self.inner.describe(), "shards": str(self._shards.count)}

    def _reads(self, span: KeyRange, limit: int) -> "list[_ShardRead]":
        own = self._shards.ranges(span)
        size = limit if len(own) == 1 else min(limit, _share(limit / len(own)))
        return [_ShardRead(each, size) for each in own]

    async def _merged(self, reads: "Sequence[_ShardRead]", limit: int) -> list[StoredItem]:
        """Return the first records of all shards; read on where a shard may hold more of them."""
        while True:
            items = [item for read in reads for item in read.items]
            items.sort(key=lambda item: item.key.sort, reverse=reads[0].backwards)
            last = items[limit - 1].key.sort if limit <= len(items) else None
            behind = [read for read in reads if read.may_precede(last)]
            if not behind:
                return [self._plain(item) for item in items[:limit]]
            await asyncio.gather(*(read.on(self.inner) for read in behind))

    def _plain(self, item: StoredItem) -> StoredItem:
        return StoredItem(self._shards.plain(item.key), item.value, item.version)


class _ShardRead:
    """What has been read of one shard's key range; `rest` is the range not yet read."""

    def __init__(self, span: KeyRange, size: int, *, backwards: bool = False) -> None:
        self.items: list[StoredItem] = []
        self.rest = span
        self.size = size
        self.backwards = backwards
        self._is_whole = False

    def take(self, page: Sequence[StoredItem]) -> None:
        """Add the next page."""
        self.items += page
        self._is_whole = len(page) < self.size
        if page and self.backwards:
            self.rest = replace(self.rest, end=page[-1].key.sort)
        elif page:
            self.rest = replace(self.rest, start=page[-1].key.sort + "\0")

    def may_precede(self, last: str | None) -> bool:
        """Return True if a record not yet read may come before `last`, the last one wanted."""
        if self._is_whole:
            return False
        if last is None or not self.items:
            return True
        own = self.items[-1].key.sort
        return own > last if self.backwards else own < last

    async def on(self, engine: Engine) -> None:
        """Read the next page."""
        self.take(await engine.range(self.rest, limit=self.size, reverse=self.backwards))


def _share(mean: float) -> int:
    """Return how many records to read of a shard of which `mean` are expected.

    With twice the deviation added, a second read is rare.
    """
    return ceil(mean) + 2 * isqrt(ceil(mean)) + 2

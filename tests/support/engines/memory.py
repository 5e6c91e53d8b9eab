"""Engine of dictionaries, for quick tests of the key-value store."""

import asyncio
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import count
from threading import Lock
from typing import Final

from outlast.errors import PayloadTooLarge
from outlast.store.keyvalue.engine import (
    LAST,
    Conditions,
    EngineLeases,
    Key,
    KeyRange,
    Limits,
    ServerTime,
    StoredItem,
    Value,
    Write,
)
from outlast.store.keyvalue.transfer_gate import STATUS_KEY

MOST_BYTES: Final = 1_200_000
"""As etcd takes them in one transaction."""

MOST_RECORD_BYTES: Final = 400_000
"""As DynamoDB takes them in one item."""


class MemoryEngine:
    """Ordered keys in memory; every write is reported to the watchers.

    It refuses more bytes than etcd takes in a transaction, or DynamoDB in a record. `before` is
    called before every transaction. At every request other tasks may run. With a `status_delay`,
    transactions do not compare the transfer status, as on DynamoDB.
    """

    def __init__(
        self,
        *,
        most_writes: int = 100,
        most_bytes: int = MOST_BYTES,
        most_record_bytes: int = MOST_RECORD_BYTES,
        status_delay: float | None = None,
        partition_units: int | None = None,
    ) -> None:
        self.limits = Limits(
            most_writes=most_writes,
            most_bytes=most_bytes,
            most_record_bytes=most_record_bytes,
            poll=0.5,
            beat=0.05,
            status_delay=status_delay,
            partition_units=partition_units,
        )
        self.leases: EngineLeases | None = None
        self.before: Callable[[Sequence[Write]], None] = lambda _: None
        self._parts: dict[str, dict[str, StoredItem]] = defaultdict(dict)
        self._order: dict[str, list[str]] = defaultdict(list)
        self._versions = count(1)
        self._one_at_a_time = Lock()
        self._watchers: list[Callable[[Write], None]] = []

    def exists(self) -> bool:
        return True

    def connection_warnings(self) -> list[str]:
        return []

    async def health_warnings(self) -> list[str]:
        return ["it forgets everything when its process ends"]

    async def open(self) -> None:
        """No-op."""

    async def close(self) -> None:
        """No-op: the records stay."""

    async def release_loop(self) -> None:
        """No-op."""

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        await self._pause()
        return [self._parts[key.part].get(key.sort) for key in keys]

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        await self._pause()
        order = self._order[span.part]
        start = bisect_left(order, span.start)
        end = len(order) if span.end is None else bisect_left(order, span.end)
        chosen = order[start:end]
        if reverse:
            chosen.reverse()
        return [self._parts[span.part][sort] for sort in chosen[:limit]]

    async def scan(self, start: str) -> AsyncIterator[StoredItem]:
        await self._pause()
        parts = [held for part, held in self._parts.items() if part.startswith(start)]
        for entry in [entry for held in parts for entry in held.values()]:
            yield entry

    async def ranges(self, asked: Sequence[tuple[KeyRange, int]]) -> list[list[StoredItem]]:
        return [await self.range(span, limit=limit) for span, limit in asked]

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        await self._pause()
        touched = {*conditions, *(write.key for write in writes)} - {STATUS_KEY}
        assert len(touched) <= self.limits.most_writes, f"{len(touched)} records: {touched}"
        assert len({write.key for write in writes}) == len(writes), "a key is written twice"
        self._require_small(writes)
        self.before(writes)
        with self._one_at_a_time:  # lock heartbeats come from a thread
            if any(self._version(key) != version for key, version in conditions.items()):
                return False
            for write in writes:
                self._write(write.key, write.value)
        for write in writes:
            for received in list(self._watchers):
                received(write)
        return True

    async def advance(self, counter: Key, by: int) -> int:
        await self._pause()
        with self._one_at_a_time:
            there = self._parts[counter.part].get(counter.sort)
            last: int = by + (there.value[LAST] if there else 0)
            self._write(counter, {LAST: last})
        return last

    async def last_number(self, counter: Key) -> int:
        [there] = await self.get([counter])
        return there.value[LAST] if there else 0

    def watch(self, parts: Sequence[str], received: Callable[[Write], None]) -> Callable[[], None]:
        def own(write: Write) -> None:
            if write.key.part.startswith(tuple(parts)):
                received(write)

        self._watchers.append(own)
        return lambda: self._watchers.remove(own)

    async def time(self) -> None:
        """Report no time."""

    @property
    def latest_time(self) -> ServerTime | None:
        return None

    async def describe(self) -> Mapping[str, str]:
        return {"engine": "dictionaries in memory"}

    def everything(self) -> dict[Key, Value]:
        """Return all records."""
        parts = self._parts.items()
        return {Key(part, s): e.value for part, held in parts for s, e in held.items()}

    def _require_small(self, writes: Sequence[Write]) -> None:
        sizes = [write.size for write in writes]
        if sum(sizes) > self.limits.most_bytes:
            raise PayloadTooLarge(f"the transaction is too large: {sum(sizes):,} bytes")
        if max(sizes, default=0) > self.limits.most_record_bytes:
            raise PayloadTooLarge(f"a record is too large: {max(sizes):,} bytes")

    async def _pause(self) -> None:
        await asyncio.sleep(0)  # other tasks run, as with a network

    def _version(self, key: Key) -> str | None:
        entry = self._parts[key.part].get(key.sort)
        return None if entry is None else entry.version

    def _write(self, key: Key, value: Value | None) -> None:
        held, order = self._parts[key.part], self._order[key.part]
        if value is None:
            if held.pop(key.sort, None) is not None:
                del order[bisect_left(order, key.sort)]
            return
        if key.sort not in held:
            insort(order, key.sort)
        held[key.sort] = StoredItem(key, dict(value), str(next(self._versions)))

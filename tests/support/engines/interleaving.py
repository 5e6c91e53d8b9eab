"""Engine that reads record by record, and lets a rival run between any two."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import TypeVar

from outlast.store.keyvalue.engine import (
    Conditions,
    EngineLeases,
    Key,
    KeyRange,
    Limits,
    StoredItem,
    Write,
)
from support.engines.memory import MemoryEngine

Item = TypeVar("Item")
Rival = Callable[[], Awaitable[None]]


class QuickEngine(MemoryEngine):
    """Memory engine that never yields, and can be copied."""

    def copied(self) -> "QuickEngine":
        """Return an independent copy."""
        twin = type(self)(most_writes=self.limits.most_writes)
        twin.restore(self.entries(), first_version=next(self._versions))
        return twin

    def restore(self, entries: Mapping[Key, StoredItem], *, first_version: int) -> None:
        """Take over these records; those of one part come in their order."""
        self._versions = count(first_version)
        for (part, sort), entry in entries.items():
            self._parts[part][sort] = entry
            self._order[part].append(sort)

    def changed(self, since: Mapping[Key, StoredItem]) -> tuple[list[StoredItem], list[StoredItem]]:
        """Return the changed records as they are, and as they were."""
        now = self.entries()
        new = [entry for key, entry in now.items() if since.get(key) is not entry]
        return new, [entry for key, entry in since.items() if now.get(key) is not entry]

    def entries(self) -> dict[Key, StoredItem]:
        """Return all records."""
        parts = [(self._parts[part], order) for part, order in self._order.items()]
        return {held[sort].key: held[sort] for held, order in parts for sort in order}

    async def _pause(self) -> None:
        pass


class InterleavingEngine:
    """Reads record by record, and lets a rival run once.

    `armed(n, rival)`: the rival runs before step `n`, from 0. A step is one record read, or one
    transaction. `backwards`: of several keys the last is read first. `steps` lists them: the part
    read, None for a transaction.
    """

    def __init__(self, engine: QuickEngine, *, backwards: bool = False) -> None:
        self._engine = engine
        self._backwards = backwards
        self._at = 0
        self._rival: Rival | None = None
        self.steps: list[str | None] = []

    def armed(self, number: int, rival: Rival) -> None:
        self._at, self._rival, self.steps = number, rival, []

    @property
    def limits(self) -> Limits:
        return self._engine.limits

    @property
    def leases(self) -> EngineLeases | None:
        return self._engine.leases

    def exists(self) -> bool:
        return True

    async def open(self) -> None:
        """No-op."""

    async def close(self) -> None:
        """No-op."""

    async def release_loop(self) -> None:
        """No-op."""

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        found: dict[Key, StoredItem | None] = {}
        for key in self._turned(list(dict.fromkeys(keys))):
            await self._step(key.part)
            [found[key]] = await self._engine.get([key])
        return [found[key] for key in keys]

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        found: list[StoredItem] = []
        while len(found) < limit:
            await self._step(span.part)
            page = await self._engine.range(span, limit=1, reverse=reverse)
            if not page:
                break
            found += page
            sort = page[0].key.sort
            span = KeyRange(span.part, span.start, sort) if reverse else _after(span, sort)
        return found

    async def ranges(self, asked: Sequence[tuple[KeyRange, int]]) -> list[list[StoredItem]]:
        found = [await self.range(span, limit=limit) for span, limit in self._turned(asked)]
        return self._turned(found)

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        await self._step(None)
        return await self._engine.transact(conditions, writes)

    async def advance(self, counter: Key, by: int) -> int:
        await self._step(counter.part)
        return await self._engine.advance(counter, by)

    async def last_number(self, counter: Key) -> int:
        await self._step(counter.part)
        return await self._engine.last_number(counter)

    async def scan(self, start: str) -> AsyncIterator[StoredItem]:
        async for entry in self._engine.scan(start):
            await self._step(entry.key.part)
            yield entry

    def watch(self, parts: Sequence[str], received: Callable[[Write], None]) -> None:
        """No watch."""

    async def time(self) -> None:
        """Report no time."""

    @property
    def latest_time(self) -> None:
        """Report no time."""

    async def describe(self) -> Mapping[str, str]:
        return await self._engine.describe()

    def connection_warnings(self) -> list[str]:
        return []

    async def health_warnings(self) -> list[str]:
        return []

    async def _step(self, part: str | None) -> None:
        rival = self._rival
        if rival is not None and self._at == len(self.steps):
            self._rival = None
            await rival()
        self.steps.append(part)

    def _turned(self, items: Sequence[Item]) -> list[Item]:
        return list(reversed(items)) if self._backwards else list(items)


def _after(span: KeyRange, sort: str) -> KeyRange:
    return KeyRange(span.part, f"{sort}\0", span.end)

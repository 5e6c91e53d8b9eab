"""An engine whose reads are never of one moment: somebody else may come between any two records."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
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
    """Gives nobody else a turn, and can be had twice."""

    def copied(self) -> "QuickEngine":
        """Another one that holds the same, and goes its own way."""
        twin = type(self)(most_writes=self.limits.most_writes)
        twin.acquire_lock(self.entries(), first_version=next(self._versions))
        return twin

    def acquire_lock(self, entries: Mapping[Key, StoredItem], *, first_version: int) -> None:
        """Have these records as they are; those of one part come in their order."""
        self._versions = count(first_version)
        for (part, sort), entry in entries.items():
            self._parts[part][sort] = entry
            self._order[part].append(sort)

    def changed(self, since: Mapping[Key, StoredItem]) -> tuple[list[StoredItem], list[StoredItem]]:
        """Records as they are, and as they were then, where those are not the same."""
        now = self.entries()
        new = [entry for key, entry in now.items() if since.get(key) is not entry]
        return new, [entry for key, entry in since.items() if now.get(key) is not entry]

    def entries(self) -> dict[Key, StoredItem]:
        """All that it holds, each with its version."""
        parts = [(self._parts[part], order) for part, order in self._order.items()]
        return {held[sort].key: held[sort] for held, order in parts for sort in order}

    async def _pause(self) -> None:
        pass


class TornEngine:
    """Reads record by record, as a server may that promises no more, and lets a rival in once.

    `armed(n, rival)`: from now on the rival acts before the step of that number, from 0. A step is
    one record that is read, or one transaction. `backwards`: the last of several keys comes first.
    `steps` are those since then: the part that was read or counted in, None for a transaction.
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
        """It is open."""

    async def close(self) -> None:
        """It keeps what it has."""

    async def release_loop(self) -> None:
        """It belongs to no loop."""

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

    async def scan(self, start: str) -> AsyncIterator[StoredItem]:
        async for entry in self._engine.scan(start):
            await self._step(entry.key.part)
            yield entry

    def watch(self, parts: Sequence[str], heard: Callable[[Write], None]) -> None:
        """Nobody is to be woken."""

    async def time(self) -> datetime | None:
        return None

    async def describe(self) -> Mapping[str, str]:
        return await self._engine.describe()

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

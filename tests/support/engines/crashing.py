"""Engine whose process dies before a chosen transaction."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime

from outlast.store.keyvalue.engine import (
    Conditions,
    Engine,
    EngineLeases,
    Key,
    KeyRange,
    Limits,
    StoredItem,
    Write,
)


class EngineCrashed(BaseException):
    """The process is dead; no code may catch this and go on."""


class CrashingEngine:
    """`armed(n)`: of the next transactions, the one with that number, from 0, is not sent.

    No later request is sent either.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._dies_at: int | None = None
        self._is_dead = False
        self.sent = 0

    def armed(self, number: int | None) -> None:
        self.sent, self._dies_at = 0, number

    @property
    def limits(self) -> Limits:
        return self._engine.limits

    @property
    def leases(self) -> EngineLeases | None:
        self._live()
        return self._engine.leases

    def exists(self) -> bool:
        return self._engine.exists()

    async def open(self) -> None:
        await self._engine.open()

    async def close(self) -> None:
        await self._engine.close()

    async def release_loop(self) -> None:
        await self._engine.release_loop()

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        self._live()
        return await self._engine.get(keys)

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        self._live()
        return await self._engine.range(span, limit=limit, reverse=reverse)

    async def ranges(self, asked: Sequence[tuple[KeyRange, int]]) -> list[list[StoredItem]]:
        self._live()
        return await self._engine.ranges(asked)

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        self._is_dead = self._is_dead or self.sent == self._dies_at
        self._live()
        self.sent += 1
        return await self._engine.transact(conditions, writes)

    async def advance(self, counter: Key, by: int) -> int:
        self._is_dead = self._is_dead or self.sent == self._dies_at
        self._live()
        self.sent += 1
        return await self._engine.advance(counter, by)

    async def scan(self, start: str) -> AsyncIterator[StoredItem]:
        self._live()
        async for entry in self._engine.scan(start):
            yield entry

    def watch(self, parts: Sequence[str], received: Callable[[Write], None]) -> None:
        """No watch."""

    async def time(self) -> datetime | None:
        return await self._engine.time()

    async def describe(self) -> Mapping[str, str]:
        return await self._engine.describe()

    async def health_warnings(self) -> list[str]:
        return await self._engine.health_warnings()

    def _live(self) -> None:
        if self._is_dead:
            raise EngineCrashed

"""Engine whose process dies before a chosen transaction."""

from collections.abc import AsyncIterator, Callable, Sequence

from outlast.store.keyvalue.engine import (
    Conditions,
    Engine,
    EngineLeases,
    Key,
    KeyRange,
    StoredItem,
    Write,
)
from outlast.store.keyvalue.engine_wrapper import EngineWrapper


class EngineCrashed(BaseException):
    """The process is dead; no code may catch this and go on."""


class CrashingEngine(EngineWrapper):
    """`armed(n)`: of the next transactions, the one with that number, from 0, is not sent.

    No later request is sent either.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._dies_at: int | None = None
        self._is_dead = False
        self.sent = 0

    def armed(self, number: int | None) -> None:
        self.sent, self._dies_at = 0, number

    @property
    def leases(self) -> EngineLeases | None:
        self._live()
        return self.inner.leases

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        self._live()
        return await self.inner.get(keys)

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        self._live()
        return await self.inner.range(span, limit=limit, reverse=reverse)

    async def ranges(self, asked: Sequence[tuple[KeyRange, int]]) -> list[list[StoredItem]]:
        self._live()
        return await self.inner.ranges(asked)

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        self._is_dead = self._is_dead or self.sent == self._dies_at
        self._live()
        self.sent += 1
        return await self.inner.transact(conditions, writes)

    async def advance(self, counter: Key, by: int) -> int:
        self._is_dead = self._is_dead or self.sent == self._dies_at
        self._live()
        self.sent += 1
        return await self.inner.advance(counter, by)

    async def last_number(self, counter: Key) -> int:
        self._live()
        return await self.inner.last_number(counter)

    async def scan(self, start: str) -> AsyncIterator[StoredItem]:
        self._live()
        async for entry in self.inner.scan(start):
            yield entry

    def watch(self, parts: Sequence[str], received: Callable[[Write], None]) -> None:
        """No watch."""

    def _live(self) -> None:
        if self._is_dead:
            raise EngineCrashed

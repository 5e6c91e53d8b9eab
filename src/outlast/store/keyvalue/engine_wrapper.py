"""Engine that passes every request on to another; subclasses change some of them."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from outlast.store.keyvalue.engine import (
    Conditions,
    Engine,
    EngineLeases,
    Key,
    KeyRange,
    Limits,
    ServerTime,
    StoredItem,
    Write,
)


class EngineWrapper:
    """Behaves as the engine `inner` does."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    @property
    def limits(self) -> Limits:
        """Limits and intervals of the engine."""
        return self.inner.limits

    @property
    def leases(self) -> EngineLeases | None:
        """Leases of the engine."""
        return self.inner.leases

    def exists(self) -> bool:
        """Return True if the storage exists."""
        return self.inner.exists()

    async def open(self) -> None:
        """Open the engine."""
        await self.inner.open()

    async def close(self) -> None:
        """Close the engine."""
        await self.inner.close()

    async def release_loop(self) -> None:
        """Release what the running event loop has used."""
        await self.inner.release_loop()

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        """Return records in the order of `keys`."""
        return await self.inner.get(keys)

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        """Return the first records of a key range in order, or the last ones in reverse."""
        return await self.inner.range(span, limit=limit, reverse=reverse)

    async def ranges(self, asked: Sequence[tuple[KeyRange, int]]) -> list[list[StoredItem]]:
        """Return the first records of each key range."""
        return await self.inner.ranges(asked)

    async def scan(self, start: str) -> AsyncIterator[StoredItem]:
        """Yield all records of parts that begin with `start`."""
        async for item in self.inner.scan(start):
            yield item

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        """Write everything if all conditions hold."""
        return await self.inner.transact(conditions, writes)

    async def advance(self, counter: Key, by: int) -> int:
        """Return the last of `by` new numbers."""
        return await self.inner.advance(counter, by)

    async def last_number(self, counter: Key) -> int:
        """Return a number that every later one exceeds."""
        return await self.inner.last_number(counter)

    def watch(
        self, parts: Sequence[str], heard: Callable[[Write], None]
    ) -> Callable[[], None] | None:
        """Watch parts."""
        return self.inner.watch(parts, heard)

    async def time(self) -> ServerTime | None:
        """Ask for the server's time."""
        return await self.inner.time()

    @property
    def latest_time(self) -> ServerTime | None:
        """The server's time in the latest answer."""
        return self.inner.latest_time

    async def describe(self) -> Mapping[str, str]:
        """Return what the engine says of itself."""
        return await self.inner.describe()

    def connection_warnings(self) -> list[str]:
        """Return the engine's warnings about its connection."""
        return self.inner.connection_warnings()

    async def health_warnings(self) -> list[str]:
        """Return the engine's warnings."""
        return await self.inner.health_warnings()

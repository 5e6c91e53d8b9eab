"""Engine whose reads are judged: damaged records are marked, and left out of key ranges."""

from collections.abc import AsyncIterator, Sequence

from outlast.store.keyvalue.engine import (
    DamagedValue,
    Engine,
    Key,
    KeyRange,
    StoredItem,
)
from outlast.store.keyvalue.engine_wrapper import EngineWrapper
from outlast.store.keyvalue.repositories.record_check import checked


class CheckedEngine(EngineWrapper):
    """An open engine. `inner` reads its records as they are.

    With `refuses`, a read of a damaged record raises StoreCorrupt.
    """

    def __init__(self, inner: Engine, *, refuses: bool = False) -> None:
        super().__init__(inner)
        self._refuses = refuses

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        """Return records in the order of `keys`; a damaged one has a DamagedValue."""
        found = await self.inner.get(keys)
        return [None if item is None else self._checked(item) for item in found]

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        """Return the first sound records of a key range in order, or the last ones in reverse."""
        found: list[StoredItem] = []
        while len(found) < limit:
            asked = limit - len(found)
            page = await self.inner.range(span, limit=asked, reverse=reverse)
            found += self._kept(span, page)
            if len(page) < asked:
                break
            span = _rest(span, page[-1].key.sort, reverse=reverse)
        return found

    async def ranges(self, asked: Sequence[tuple[KeyRange, int]]) -> list[list[StoredItem]]:
        """Return the first sound records of each key range."""
        pages = await self.inner.ranges(asked)
        sound = [self._kept(span, page) for (span, _), page in zip(asked, pages, strict=True)]
        return [
            kept if len(kept) == len(page) else await self.range(span, limit=limit)
            for kept, page, (span, limit) in zip(sound, pages, asked, strict=True)
        ]

    async def scan(self, start: str) -> AsyncIterator[StoredItem]:
        """Yield all sound records of parts that begin with `start`."""
        async for item in self.inner.scan(start):
            if self._checked(item).damage is None:
                yield item

    def _checked(self, item: StoredItem) -> StoredItem:
        judged = checked(item)
        if self._refuses and isinstance(judged.value, DamagedValue):
            judged.value.refuse()
        return judged

    def _kept(self, span: KeyRange, page: Sequence[StoredItem]) -> list[StoredItem]:
        """Return the sound records; of a range of one key also a damaged one."""
        items = [self._checked(item) for item in page]
        is_one_key = span.end == f"{span.start}\0"
        return items if is_one_key else [item for item in items if item.damage is None]


def _rest(span: KeyRange, last: str, *, reverse: bool) -> KeyRange:
    """Return the part of a key range behind the last key that was read."""
    if reverse:
        return KeyRange(span.part, span.start, last)
    return KeyRange(span.part, f"{last}\0", span.end)

"""Going through all that a part holds, a page at a time."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange, StoredItem

PAGE: Final = 500


async def scan_partition(desk: StoreContext, part: str) -> AsyncIterator[StoredItem]:
    """Every record of a part, in order; who writes meanwhile may be seen or not."""
    async for page in pages(desk, part):
        for entry in page:
            yield entry


async def pages(desk: StoreContext, part: str) -> AsyncIterator[Sequence[StoredItem]]:
    """The same, as it is read."""
    start = ""
    while True:
        page = await desk.engine.range(KeyRange(part, start), limit=PAGE)
        yield page
        if len(page) < PAGE:
            return
        start = page[-1].key.sort + "\0"

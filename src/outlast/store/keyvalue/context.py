"""Context handed to every operation, and scans of a partition."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar

from outlast.clock import Clock
from outlast.core.ids import Ids
from outlast.store.contract.notifications import Notification
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.clocks import LeaseClock
from outlast.store.keyvalue.engine import Engine, KeyRange, StoredItem
from outlast.store.keyvalue.unit_of_work import UnitOfWork, UnitRunner

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreContext:
    """Engine in units of work, clocks, ids and notifications of an open store.

    `registered_queues` are in the queue-name index already. `tombstones` is how long the dedupe
    keys of pruned jobs stay; None for ever.
    """

    units: UnitRunner
    clock: Clock
    leases: LeaseClock
    ids: Ids
    notify: Callable[[Notification], None]
    registered_queues: set[str]
    tombstones: timedelta | None = None

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.units.engine

    def now(self) -> datetime:
        """Return the time by the store's clock."""
        return self.clock.now()

    async def run_unit(self, work: Callable[[UnitOfWork], Awaitable[Answer]]) -> Answer:
        """Run `work` in a unit of work, repeated on conflicts, and return its answer."""
        return await self.units.do(work)

    async def numbers(self, count: int) -> int:
        """Return the first of `count` new numbers, higher than all before."""
        return await self.engine.advance(key_layout.NUMBERS, count) - count + 1


PAGE: Final = 500
"""Records per request of a scan."""


async def scan_partition(context: StoreContext, part: str) -> AsyncIterator[StoredItem]:
    """Yield every record of a part, in order; concurrent writes may be seen or not."""
    async for page in pages(context, part):
        for entry in page:
            yield entry


async def pages(context: StoreContext, part: str) -> AsyncIterator[Sequence[StoredItem]]:
    """Yield the records of a part page by page."""
    start = ""
    while True:
        page = await context.engine.range(KeyRange(part, start), limit=PAGE)
        yield page
        if len(page) < PAGE:
            return
        start = page[-1].key.sort + "\0"

"""What every verb works with: the engine in units, the clocks, numbers, and who is to be woken."""

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
    """Handed to every verb."""

    units: UnitRunner
    clock: Clock
    leases: LeaseClock
    ids: Ids
    notify: Callable[[Notification], None]
    registered_queues: set[str]  # queues that are on the list already
    tombstones: timedelta | None = None  # how long the keys of pruned jobs stay; None: for ever

    @property
    def engine(self) -> Engine:
        return self.units.engine

    def now(self) -> datetime:
        return self.clock.now()

    async def run_unit(self, work: Callable[[UnitOfWork], Awaitable[Answer]]) -> Answer:
        return await self.units.do(work)

    async def numbers(self, count: int) -> int:
        """The first of so many numbers that nobody else has, higher than all before."""
        return await self.engine.advance(key_layout.NUMBERS, count) - count + 1


PAGE: Final = 500


async def scan_partition(context: StoreContext, part: str) -> AsyncIterator[StoredItem]:
    """Every record of a part, in order; who writes meanwhile may be seen or not."""
    async for page in pages(context, part):
        for entry in page:
            yield entry


async def pages(context: StoreContext, part: str) -> AsyncIterator[Sequence[StoredItem]]:
    """The same, as it is read."""
    start = ""
    while True:
        page = await context.engine.range(KeyRange(part, start), limit=PAGE)
        yield page
        if len(page) < PAGE:
            return
        start = page[-1].key.sort + "\0"

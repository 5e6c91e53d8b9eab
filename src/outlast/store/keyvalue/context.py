"""Context handed to every operation, and scans of a partition."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from outlast.clock import Clock
from outlast.core.ids import Ids
from outlast.store.contract.notifications import Notification
from outlast.store.keyvalue.checked_engine import CheckedEngine
from outlast.store.keyvalue.clocks import LeaseClock
from outlast.store.keyvalue.engine import Engine, Key, KeyRange, StoredItem
from outlast.store.keyvalue.number_source import NumberSource
from outlast.store.keyvalue.transfer_gate import TransferGate
from outlast.store.keyvalue.unanswered_claims import UnansweredClaims
from outlast.store.keyvalue.unit_of_work import UnitOfWork, UnitRunner

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreContext:
    """Engine in units of work, clocks, ids and notifications of an open store.

    `registered_queues` are in the queue-name index already. `tombstones` is how long the dedupe
    keys of pruned jobs stay; None for ever. With a `gate`, nothing is written unless the store
    is open. `stuck_intents` were logged, because they cannot be completed.
    """

    units: UnitRunner
    clock: Clock
    leases: LeaseClock
    ids: Ids
    notify: Callable[[Notification], None]
    registered_queues: set[str]
    number_source: NumberSource
    tombstones: timedelta | None = None
    stuck_intents: set[Key] = field(default_factory=set)
    tolerated: frozenset[Key] = frozenset()
    gate: TransferGate | None = None
    unanswered_claims: UnansweredClaims = field(default_factory=UnansweredClaims)

    @property
    def engine(self) -> Engine:
        """The engine; its reads are checked."""
        return self.units.engine

    @property
    def raw_engine(self) -> Engine:
        """The engine, whose reads are not checked."""
        engine = self.engine
        return engine.inner if isinstance(engine, CheckedEngine) else engine

    def refusing(self) -> "StoreContext":
        """Return a context whose reads of damaged records raise StoreCorrupt."""
        engine = CheckedEngine(self.raw_engine, refuses=True)
        return replace(self, units=self.units.on(engine))

    def now(self) -> datetime:
        """Return the time by the store's clock."""
        return self.clock.now()

    async def run_unit(self, work: Callable[[UnitOfWork], Awaitable[Answer]]) -> Answer:
        """Run `work` in a unit of work, repeated on conflicts, and return its answer."""
        return await self.units.do(work, self.gate, self.tolerated)

    def without_gate(self) -> "StoreContext":
        """Return the context for completing what was decided while the store was open."""
        return self if self.gate is None else replace(self, gate=None)

    def despite(self, stuck: Collection[Key]) -> "StoreContext":
        """Return the context for reads that show the jobs of stuck intents as they are."""
        return replace(self, tolerated=frozenset(stuck))

    async def numbers(self, count: int) -> int:
        """Return the first of `count` new numbers, higher than all before."""
        return await self.number_source.draw(count)


PAGE: Final = 500
"""Records per request of a scan."""


async def scan_partition(context: StoreContext, part: str) -> AsyncIterator[StoredItem]:
    """Yield every record of a part, in order; concurrent writes may be seen or not."""
    async for page in pages(context, part):
        for entry in page:
            yield entry


async def pages(
    context: StoreContext, part: str, *, size: int = PAGE
) -> AsyncIterator[Sequence[StoredItem]]:
    """Yield the records of a part page by page."""
    start = ""
    while True:
        page = await context.engine.range(KeyRange(part, start), limit=size)
        yield page
        if len(page) < size:
            return
        start = page[-1].key.sort + "\0"

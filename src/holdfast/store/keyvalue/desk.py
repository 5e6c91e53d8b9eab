"""What every verb works with: the engine in units, the clocks, numbers, and who is to be woken."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.core.ids import Ids
from holdfast.store.around import Hint
from holdfast.store.keyvalue import layout
from holdfast.store.keyvalue.leases import Leases
from holdfast.store.keyvalue.port import Engine
from holdfast.store.keyvalue.unit import Unit, Units

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Handed to every verb."""

    units: Units
    clock: Clock
    leases: Leases
    ids: Ids
    wake: Callable[[Hint], None]
    known: set[str]  # queues that are on the list already

    @property
    def engine(self) -> Engine:
        return self.units.engine

    def now(self) -> datetime:
        return self.clock.now()

    async def do(self, work: Callable[[Unit], Awaitable[Answer]]) -> Answer:
        return await self.units.do(work)

    async def numbers(self, count: int) -> int:
        """The first of so many numbers that nobody else has, higher than all before."""

        async def take(unit: Unit) -> int:
            there = await unit.get(layout.NUMBERS)
            last: int = there["last"] if there else 0
            unit.put(layout.NUMBERS, {"last": last + count})
            return last + 1

        return await self.do(take)

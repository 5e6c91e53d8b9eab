"""Engine whose transactions fail on purpose, and always the same ones."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from random import Random

from outlast.errors import StoreBusy, StoreUnavailable
from outlast.store.keyvalue.engine import Conditions, Engine, Key, Write
from outlast.store.keyvalue.engine_wrapper import EngineWrapper


class Fault(StrEnum):
    """How a transaction fails."""

    THROTTLED = "throttled"  # not written
    SERVER_ERROR = "server error"  # answered with 500, and not written
    TIMED_OUT = "timed out"  # written, and the reply lost
    COMMITS_LATER = "commits later"  # the reply lost, and written when `commit_late` is called


NOT_WRITTEN = (Fault.THROTTLED, Fault.SERVER_ERROR)
ALL = (*NOT_WRITTEN, Fault.TIMED_OUT)

Chooser = Callable[[Sequence[Write]], Fault | None]
"""Returns how a transaction of these writes fails, or None."""


class FaultyEngine(EngineWrapper):
    """Fails the transactions that `choose` chooses; set it to `fine` for none."""

    def __init__(self, engine: Engine, choose: Chooser | None = None) -> None:
        super().__init__(engine)
        self.choose = choose or fine
        self.failed: Counter[Fault] = Counter()
        self._late: list[tuple[Conditions, Sequence[Write]]] = []

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        fault = self._chosen(writes)
        if fault is None:
            return await self.inner.transact(conditions, writes)
        if fault is Fault.COMMITS_LATER:
            self._late.append((conditions, writes))
        if fault is Fault.TIMED_OUT and not await self.inner.transact(conditions, writes):
            return False
        raise _error(fault)

    async def advance(self, counter: Key, by: int) -> int:
        fault = self._chosen([Write(counter, None)])
        if fault is None:
            return await self.inner.advance(counter, by)
        raise _error(fault)

    async def commit_late(self) -> list[bool]:
        """Send the transactions that are under way still; return which were written."""
        late, self._late = self._late, []
        return [await self.inner.transact(*each) for each in late]

    def _chosen(self, writes: Sequence[Write]) -> Fault | None:
        fault = self.choose(writes)
        if fault is not None:
            self.failed[fault] += 1
        return fault


def _error(fault: Fault) -> StoreBusy | StoreUnavailable:
    kind = StoreBusy if fault is Fault.THROTTLED else StoreUnavailable
    return kind(f"the test's engine: {fault}")


def fine(_: Sequence[Write]) -> None:
    """Choose no transaction."""


def at_random(seed: int, share: float, faults: Sequence[Fault] = ALL) -> Chooser:
    """Choose that share of the transactions."""
    random = Random(seed)

    def choose(_: Sequence[Write]) -> Fault | None:
        return random.choice(faults) if random.random() < share else None

    return choose


def every(number: int, fault: Fault, *, part: str | None = None) -> Chooser:
    """Choose each n-th of the transactions that write to `part`; None for all."""
    seen = 0

    def choose(writes: Sequence[Write]) -> Fault | None:
        nonlocal seen
        seen += part is None or any(write.key.part == part for write in writes)
        return fault if seen and seen % number == 0 and _is_about(writes, part) else None

    return choose


def those_of(jobs: Collection[str], fault: Fault) -> Chooser:
    """Choose the transactions that write the record of one of these jobs."""

    def choose(writes: Sequence[Write]) -> Fault | None:
        values = [write.value or {} for write in writes]
        return fault if any(value.get("job_id") in jobs for value in values) else None

    return choose


def _is_about(writes: Sequence[Write], part: str | None) -> bool:
    return part is None or any(write.key.part == part for write in writes)

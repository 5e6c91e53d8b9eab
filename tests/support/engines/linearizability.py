"""Check of concurrent operations: every interleaving must equal one of their serial orders.

    async def world(store, clock): ...  # fills the store; returns operations by name
    check = await InterleavingCheck.of(world)
    assert await check.anomalies("claim", "cancel") == []

Other operations run between any two records that an operation reads. All answers, and what is
stored afterwards, must be those of one serial order.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Final

from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Engine, Key, StoredItem
from outlast.store.keyvalue.shards import Shards
from outlast.store.keyvalue.store import KeyValueStore
from outlast.testing.clock import FakeClock
from outlast.testing.stores import ids_for_test
from support.engines.interleaving import InterleavingEngine, QuickEngine

Verb = Callable[[KeyValueStore], Awaitable[Any]]
MakeWorld = Callable[[KeyValueStore, FakeClock], Awaitable[Mapping[str, Verb]]]

NUMBERS: Final = frozenset({"seq", "root_seq", "root", "run_id", "version", "reservation"})
"""Fields assigned in order of arrival; they tell nothing else."""

ASIDE: Final = frozenset(
    {
        "counter",
        "places",
        key_layout.EVENT_COUNTER,
        key_layout.QUEUE_NAME,
        key_layout.LOCK,
        key_layout.LIVENESS,
    }
)
NEVER: Final = -1
MARK: Final = "pending"
"""Field that may stay in a record after its intent is complete."""


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """What each operation answered, mine first, and the records they wrote and deleted."""

    answers: tuple[str, ...]
    written: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An outcome of no serial order; `step` is when the others ran."""

    mine: str
    others: Sequence[str]
    step: int
    backwards: bool
    found: PairOutcome
    orders: Sequence[PairOutcome]

    def __str__(self) -> str:
        way = ", backwards" if self.backwards else ""
        lines = [f"{self.mine}, met by {' and '.join(self.others)} before step {self.step}{way}:"]
        lines += [f"  answered {answer}" for answer in self.found.answers]
        for order in self.orders:
            lines += ["  but in order:", *(f"    {answer}" for answer in order.answers)]
            there, wanted = Counter(self.found.written), Counter(order.written)
            there.subtract(wanted)
            lines += [f"    {number:+} {each}" for each, number in there.items() if number]
        return "\n".join(lines)

    __repr__ = __str__


class InterleavingCheck:
    """The operations of one world, each to be interleaved with others."""

    def __init__(self, clock: FakeClock, engine: QuickEngine, shards: int) -> None:
        self.verbs: Mapping[str, Verb] = {}
        self._clock = clock
        self._engine = engine
        self._shards = shards
        self._before: Mapping[Key, StoredItem] = {}

    @classmethod
    async def of(
        cls, make: MakeWorld, *, most_writes: int = 100, shards: int = 1
    ) -> "InterleavingCheck":
        """Fill a store and return the check of its operations."""
        check = cls(FakeClock(), QuickEngine(most_writes=most_writes), shards)
        check.verbs = await make(await check._opened(check._engine), check._clock)
        check._before = check._engine.entries()
        return check

    async def all_anomalies(self) -> list[Anomaly]:
        """Return the first anomaly of every pair."""
        pairs = [(mine, other) for mine in self.verbs for other in self.verbs]
        return [found[0] for pair in pairs if (found := await self.anomalies(*pair))]

    async def anomalies(self, mine: str, *others: str) -> list[Anomaly]:
        """Return every anomaly of one operation that others interrupt."""
        orders = [await self._in_order(mine, others, at) for at in range(len(others) + 1)]
        touched = await self._touched(others)
        found: list[Anomaly] = []
        for backwards in (False, True):
            _, steps = await self._met(mine, others, NEVER, backwards=backwards)
            for step in _worth_a_try(steps, touched):
                reported, _ = await self._met(mine, others, step, backwards=backwards)
                if reported not in orders:
                    found.append(Anomaly(mine, others, step, backwards, reported, orders))
        return found

    async def _touched(self, others: Sequence[str]) -> set[str]:
        """Return the parts that the others write to."""
        engine = self._engine.copied()
        store = await self._opened(engine)
        for name in others:
            await _answer(self.verbs[name](store))
        new, old = engine.changed(self._before)
        return {entry.key.part for entry in (*new, *old)}

    async def _in_order(self, mine: str, others: Sequence[str], at: int) -> PairOutcome:
        engine = self._engine.copied()
        store = await self._opened(engine)
        names = [*others[:at], mine, *others[at:]]
        reported = [await _answer(self.verbs[name](store)) for name in names]
        return await self._outcome(engine, [reported.pop(at), *reported])

    async def _met(
        self, mine: str, others: Sequence[str], step: int, *, backwards: bool
    ) -> tuple[PairOutcome, list[str | None]]:
        """Return the outcome, and the steps that the operation took."""
        engine = self._engine.copied()
        torn = InterleavingEngine(engine, backwards=backwards)
        own, other = await self._opened(torn), await self._opened(engine)
        if backwards:  # with a filled location cache
            jobs = await own.engine.range(key_layout.due_before(self._clock.now()), limit=100)
            await own.get([entry.value["job_id"] for entry in jobs])
        await own.transfer_status()
        reported: list[str] = []

        async def act() -> None:
            reported.extend([await _answer(self.verbs[name](other)) for name in others])

        torn.armed(step, act)
        answer = await _answer(self.verbs[mine](own))
        return await self._outcome(engine, [answer, *reported]), torn.steps

    async def _outcome(self, engine: QuickEngine, answers: Sequence[str]) -> PairOutcome:
        new, old = engine.changed(self._before)
        if any(entry.key.part == key_layout.PENDING for entry in new):
            await self._opened(engine)  # completes pending intents
            new, old = engine.changed(self._before)
        written = Counter(map(_line, new))
        written.subtract(map(_line, old))
        reported = {line: number for line, number in written.items() if number and line}
        return PairOutcome(tuple(answers), reported)

    async def _opened(self, engine: Engine) -> KeyValueStore:
        ids = ids_for_test(self._clock)
        store = KeyValueStore(engine, clock=self._clock, ids=ids, shards=self._shards)
        await store.open()
        return store


def _worth_a_try(steps: Sequence[str | None], touched: Collection[str]) -> list[int]:
    """Return the steps to interrupt: after a read of unwritten parts nothing can differ."""
    first_write = steps.index(None) if None in steps else len(steps)
    return [
        step
        for step in range(len(steps))
        if step == 0 or step > first_write or steps[step - 1] in touched
    ]


async def _answer(answer: Awaitable[Any]) -> str:
    try:
        return _text(await answer)
    except Exception as error:  # noqa: BLE001 - an answer like any other
        return repr(error)


def _line(entry: StoredItem) -> str:
    value = {name: each for name, each in entry.value.items() if name != MARK}
    part = Shards(2).plain(entry.key).part
    return "" if part in ASIDE else f"{part} {_text(value)}"


def _text(value: Any) -> str:
    return json.dumps(_plain(value), default=str, sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | None):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        own = {str(name): each for name, each in value.items() if name not in NUMBERS}
        is_event = isinstance(own.get("id"), int)
        return {n: _plain(each) for n, each in own.items() if not (is_event and n == "id")}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value

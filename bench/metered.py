"""An engine that counts its requests and the capacity units that DynamoDB reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from bench.billing import Bill
from outlast.store.keyvalue.engine import (
    Conditions,
    Engine,
    EngineLeases,
    Keep,
    Key,
    KeyRange,
    StoredItem,
    Write,
)
from outlast.store.keyvalue.engine_wrapper import EngineWrapper
from outlast.store.keyvalue.engines.dynamodb.engine import DynamoDBEngine

WRITING = frozenset({"PutItem", "DeleteItem", "TransactWriteItems", "UpdateItem"})
METERED = WRITING | {"GetItem", "BatchGetItem", "Query"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Requests, and DynamoDB's capacity units for them."""

    reads: float = 0
    transactions: float = 0
    read_units: float = 0
    write_units: float = 0

    def plus(self, other: "Spent") -> "Spent":
        names = [field.name for field in fields(self)]
        return Spent(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def times(self, factor: float) -> "Spent":
        return Spent(**{f.name: getattr(self, f.name) * factor for f in fields(self)})

    def over(self, count: int) -> "Spent":
        return self.times(1 / count)


class Meter:
    """Sum of the requests since the last reset."""

    def __init__(self) -> None:
        self.spent = Spent()
        self.bill = Bill()

    def reset(self) -> None:
        self.spent = Spent()

    def add(self, **spent: float) -> None:
        self.spent = self.spent.plus(Spent(**spent))


def capacity(engine: DynamoDBEngine, meter: Meter) -> None:
    """Request the consumed capacity with every call of the engine's client, and record it."""
    events = engine._table._client.meta.events  # noqa: SLF001 - the engine has no public hook

    def ask(params: dict[str, Any], model: Any, **_: object) -> dict[str, Any] | None:
        return {**params, "ReturnConsumedCapacity": "TOTAL"} if model.name in METERED else None

    def note(parsed: Mapping[str, Any], model: Any, **_: object) -> None:
        told = parsed.get("ConsumedCapacity", [])
        each = told if isinstance(told, list) else [told]
        kind = "write_units" if model.name in WRITING else "read_units"
        meter.add(**{kind: sum(one.get("CapacityUnits", 0) for one in each)})

    events.register("provide-client-params.dynamodb", ask)
    events.register("after-call.dynamodb", note)


class Metered(EngineWrapper):
    """Counts the requests of another engine; DynamoDB needs one request per key range."""

    def __init__(self, engine: Engine, meter: Meter) -> None:
        super().__init__(engine)
        self._meter = meter
        self._is_one = not isinstance(engine, DynamoDBEngine)

    @property
    def leases(self) -> EngineLeases | None:
        return None if self.inner.leases is None else MeteredLeases(self.inner.leases, self._meter)

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        self._meter.add(reads=1 if keys else 0)
        return await self.inner.get(keys)

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        self._meter.add(reads=1)
        return await self.inner.range(span, limit=limit, reverse=reverse)

    async def ranges(self, asked: Sequence[tuple[KeyRange, int]]) -> list[list[StoredItem]]:
        self._meter.add(reads=1 if self._is_one else len(asked))
        return await self.inner.ranges(asked)

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        self._meter.add(transactions=1)
        self._meter.bill.transact(conditions, writes)
        return await self.inner.transact(conditions, writes)

    async def advance(self, counter: Key, by: int) -> int:
        self._meter.add(transactions=1)
        self._meter.bill.advance(counter)
        return await self.inner.advance(counter, by)

    async def last_number(self, counter: Key) -> int:
        self._meter.add(reads=1)
        return await self.inner.last_number(counter)


class MeteredLeases:
    """Counts the requests for leases; renewing one counts as a read, the cluster writes nothing."""

    def __init__(self, leases: EngineLeases, meter: Meter) -> None:
        self._leases = leases
        self._meter = meter

    async def put(self, record: Write, *, span: float) -> Keep:
        keep = await self._leases.put(record, span=span)

        async def kept() -> bool:
            self._meter.add(reads=1)
            return await keep()

        return kept

    async def left(self, lease: str) -> int:
        self._meter.add(reads=1)
        return await self._leases.left(lease)

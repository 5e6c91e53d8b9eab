"""Memory engine that counts write units per partition, by the rules of AWS."""

import json
from collections import Counter
from collections.abc import Sequence
from math import ceil

from outlast.store.keyvalue.engine import Conditions, Key, Value, Write
from support.engines.memory import MemoryEngine

KIB = 1024


class WriteUnits(MemoryEngine):
    """Two units for each KiB of a record that a transaction writes, deletes or compares."""

    def __init__(self, *, most_writes: int = 100) -> None:
        super().__init__(most_writes=most_writes)
        self.units: Counter[str] = Counter()

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        for write in writes:
            size = max(self._kib(write.key), _kib(write.value))
            self.units[write.key.part] += 2 * size
        for key in conditions.keys() - {write.key for write in writes}:
            self.units[key.part] += 2 * self._kib(key)
        return await super().transact(conditions, writes)

    async def advance(self, counter: Key, by: int) -> int:
        self.units[counter.part] += 1
        return await super().advance(counter, by)

    def _kib(self, key: Key) -> int:
        entry = self._parts[key.part].get(key.sort)
        return _kib(None if entry is None else entry.value)


def _kib(value: Value | None) -> int:
    return 1 if value is None else ceil(len(json.dumps(value)) / KIB)

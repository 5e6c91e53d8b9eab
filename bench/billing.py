"""Write units as AWS bills them: by the size of the item, and twice in a transaction."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Final

from outlast.store.keyvalue.engine import Conditions, Key, Value, Write
from outlast.store.keyvalue.engines.dynamodb.items import key_item, put_item

KIB: Final = 1024
VERSION: Final = "0123456789abcdef0000"
"""A version as long as that of an item."""


class Bill:
    """Write units of the requests seen, by partition key; remembers the size of each item."""

    def __init__(self) -> None:
        self.units: dict[str, int] = {}
        self._sizes: dict[Key, int] = {}

    @property
    def total(self) -> int:
        return sum(self.units.values())

    def reset(self) -> None:
        self.units = {}

    def transact(self, conditions: Conditions, writes: Sequence[Write]) -> None:
        """Count one request: a write alone once, several twice; the larger of old and new item."""
        compared = conditions.keys() - {write.key for write in writes}
        factor = 1 if len(writes) + len(compared) == 1 else 2
        for write in writes:
            size = 0 if write.value is None else item_bytes(write.key, write.value)
            self._count(write.key, factor * units(max(size, self._sizes.get(write.key, 0))))
            self._sizes[write.key] = size
        for key in compared:
            self._count(key, factor * units(self._sizes.get(key, 0)))

    def advance(self, counter: Key) -> None:
        """Count one `UpdateItem` of a small item."""
        self._count(counter, 1)

    def _count(self, key: Key, amount: int) -> None:
        self.units[key.part] = self.units.get(key.part, 0) + amount


def units(size: int) -> int:
    """Return the write units of an item of so many bytes, at least one."""
    return max(1, ceil(size / KIB))


def item_bytes(key: Key, value: Value) -> int:
    """Return the size of an item by the rules of DynamoDB: names and values of all attributes."""
    item = put_item(key_item(key), value, VERSION)
    return sum(len(name.encode()) + _bytes(attribute) for name, attribute in item.items())


def _bytes(attribute: Mapping[str, Any]) -> int:
    [(kind, held)] = attribute.items()
    match kind:
        case "S":
            return len(held.encode())
        case "N":
            return ceil(len(held.lstrip("-")) / 2) + 1
        case "L":
            return 3 + sum(1 + _bytes(each) for each in held)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _bytes(each) for name, each in held.items())
        case _:
            return 1

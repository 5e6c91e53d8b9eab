"""Who holds a lock, as it is kept: each with the number of its signs of life."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast.store.keyvalue.port import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """One who has it alone, or all who share it."""

    is_shared: bool
    beats: Mapping[str, int] = field(default_factory=dict)

    def has(self, number: str) -> bool:
        return number in self.beats

    def beaten(self, number: str) -> "Holders":
        """With one more sign of life of that one, who may be new."""
        return replace(self, beats={**self.beats, number: self.beats.get(number, 0) + 1})

    def without(self, number: str) -> "Holders":
        return replace(self, beats={who: n for who, n in self.beats.items() if who != number})


def to_value(holders: Holders) -> Value:
    return {"is_shared": holders.is_shared, "beats": dict(holders.beats)}


def from_value(value: Value) -> Holders:
    return Holders(is_shared=value["is_shared"], beats=value["beats"])

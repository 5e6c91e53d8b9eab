"""Who holds a lock, as it is kept: each by a number, which tells whose life it goes with."""

from dataclasses import dataclass, replace

from outlast.store.keyvalue.engine import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRecord:
    """One who has it alone, or all who share it."""

    is_shared: bool
    numbers: tuple[str, ...] = ()

    def plus(self, number: str) -> "LockRecord":
        return replace(self, numbers=(*self.numbers, number))

    def without(self, number: str) -> "LockRecord":
        return replace(self, numbers=tuple(n for n in self.numbers if n != number))


def number(owner: str, count: int) -> str:
    """The number of one hold of an owner's."""
    return f"{owner}.{count}"


def owner(number: str) -> str:
    return number.rpartition(".")[0]


def to_value(holders: LockRecord) -> Value:
    return {"is_shared": holders.is_shared, "holders": list(holders.numbers)}


def from_value(value: Value) -> LockRecord:
    return LockRecord(is_shared=value["is_shared"], numbers=tuple(value["holders"]))

"""The port: all that the key-value store asks of an engine.

Keys have two parts. Those of one `part` are ordered by `sort`, as text compares by its UTF-8 bytes;
nothing is ordered, or read at once, across parts.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

Value = Mapping[str, Any]
"""What JSON can hold, under names: text, whole numbers, booleans, None, and lists of those."""


LAST: Final = "last"
"""The number in a record that counts."""


class Key(NamedTuple):
    """Where a record is."""

    part: str
    sort: str


@dataclass(frozen=True, slots=True)
class StoredItem:
    """A record as it was read. No two writes of a key ever give it one `version`."""

    key: Key
    value: Value
    version: str


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys of one part from `start` on, and before `end`; None is no bound."""

    part: str
    start: str = ""
    end: str | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """A record to put, or without a value to delete."""

    key: Key
    value: Value | None


Conditions = Mapping[Key, str | None]
"""The version that each record must have; None: it must not be there."""


Keep = Callable[[], Awaitable[bool]]
"""Makes a lease as long as it was at first; False: it was over."""

LEASE: Final = "lease"
"""In a record that has one: the name of its lease."""


class EngineLeases(Protocol):
    """For records that go by themselves, by the engine's own clock."""

    async def put(self, record: Write, *, span: float) -> Keep:
        """Put a record that is gone when nobody has record it for so many seconds."""
        ...

    async def left(self, lease: str) -> int:
        """Whole seconds until it is over; 0 or less: it is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an engine can take."""

    most_writes: int  # records that one transaction may write or look at
    poll: float  # seconds between two looks where nothing wakes anybody
    beat: float  # seconds between two signs of life of whoever holds a lock


class Engine(Protocol):
    """An ordered store with transactions. Every read sees every transaction that was answered."""

    @property
    def limits(self) -> Limits: ...

    @property
    def leases(self) -> EngineLeases | None:
        """None: nothing goes by itself there, or not soon."""
        ...

    def exists(self) -> bool:
        """Whether there is something to open; `open` would otherwise make it."""
        ...

    async def open(self) -> None:
        """Connect, and make what must be there; refuses what is not ours."""
        ...

    async def close(self) -> None:
        """Let go of everything; twice is fine."""
        ...

    async def release_loop(self) -> None:
        """Let go of what the running loop has used: it is about to end, and others go on."""
        ...

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        """Each record, in the order asked; None where there is none."""
        ...

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        """The first records of a span, in order, or in reverse the last ones."""
        ...

    async def ranges(self, asked: Sequence[tuple[KeyRange, int]]) -> list[list[StoredItem]]:
        """The first records of each span, up to its limit, in as few requests as it takes."""
        ...

    def scan(self, start: str) -> AsyncIterator[StoredItem]:
        """Every record of every part that begins so, in no order. It costs what there is."""
        ...

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        """Write all if every condition holds; False, and nothing, if one does not.

        No key is written twice in one transaction. When the answer got lost, the engine finds out
        what became of it before it says anything.
        """
        ...

    async def advance(self, counter: Key, by: int) -> int:
        """Raise the record's `last`, from 0 if there is none, and answer it; gaps may be left."""
        ...

    def watch(
        self, parts: Sequence[str], heard: Callable[[Write], None]
    ) -> Callable[[], None] | None:
        """Tell of every record put into parts that begin so, soon after it.

        The answer ends that; None: it cannot be done. Some may be missed.
        """
        ...

    async def time(self) -> datetime | None:
        """What the server takes for the time, to the second; None if it does not say."""
        ...

    async def describe(self) -> Mapping[str, str]:
        """What an operator should know of it, in a few words each."""
        ...

    async def health_warnings(self) -> list[str]:
        """What an operator should worry about; empty when all is well."""
        ...

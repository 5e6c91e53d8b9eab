"""Engine interface: all that the key-value store needs of a database.

A key has two parts. Keys of one `part` are ordered by `sort`, as text compares by its UTF-8 bytes.
There is no order across parts, and no read spans them at one moment.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

Value = Mapping[str, Any]
"""JSON object: text, whole numbers, booleans, None, and lists of those."""


LAST: Final = "last"
"""Field of a counter record."""


class Key(NamedTuple):
    """Address of a record."""

    part: str
    sort: str


@dataclass(frozen=True, slots=True)
class StoredItem:
    """A record as it was read. Every write of a key gives it a new `version`."""

    key: Key
    value: Value
    version: str


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys of one part from `start` on, and before `end`; None is no bound."""

    part: str
    start: str = ""
    end: str | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """A record to put, or to delete if `value` is None."""

    key: Key
    value: Value | None


Conditions = Mapping[Key, str | None]
"""Version that each record must have; None if it must not exist."""


Keep = Callable[[], Awaitable[bool]]
"""Renews a lease; returns False if it had expired."""

LEASE: Final = "lease"
"""Field that names the lease of a record."""


class EngineLeases(Protocol):
    """Records that the engine deletes when their lease expires, by its own clock."""

    async def put(self, record: Write, *, span: float) -> Keep:
        """Put a record with a lease of `span` seconds, and return the function that renews it."""
        ...

    async def left(self, lease: str) -> int:
        """Return whole seconds until the lease expires; 0 or less if it has."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits and intervals of an engine."""

    most_writes: int  # records that one transaction may write or compare
    poll: float  # seconds between two polls without a notification
    beat: float  # seconds between two heartbeats of a lock holder


class Engine(Protocol):
    """An ordered store with transactions. Every read sees every acknowledged transaction."""

    @property
    def limits(self) -> Limits:
        """Limits and intervals of the engine."""
        ...

    @property
    def leases(self) -> EngineLeases | None:
        """Leases of the engine; None if it has none, or deletes expired records late."""
        ...

    def exists(self) -> bool:
        """Return True if the storage exists; `open` creates it otherwise."""
        ...

    async def open(self) -> None:
        """Connect and create the storage if needed; raise ForeignStore for other contents."""
        ...

    async def close(self) -> None:
        """Release all resources; idempotent."""
        ...

    async def release_loop(self) -> None:
        """Release what the running event loop has used; other loops go on."""
        ...

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        """Return records in the order of `keys`; None for those that do not exist."""
        ...

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        """Return the first records of a key range in order, or the last ones in reverse."""
        ...

    async def ranges(self, asked: Sequence[tuple[KeyRange, int]]) -> list[list[StoredItem]]:
        """Return the first records of each key range up to its limit, in few requests."""
        ...

    def scan(self, start: str) -> AsyncIterator[StoredItem]:
        """Yield all records of parts that begin with `start`, unordered; reads everything."""
        ...

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        """Write everything if all conditions hold; return False, and write nothing, otherwise.

        No key is written twice in one transaction. If the reply is lost, the engine finds out
        whether it was written before it returns.
        """
        ...

    async def advance(self, counter: Key, by: int) -> int:
        """Add `by` to a counter, which starts at 0, and return it; numbers may be skipped."""
        ...

    def watch(
        self, parts: Sequence[str], heard: Callable[[Write], None]
    ) -> Callable[[], None] | None:
        """Call `heard` for records put into parts that begin with one of `parts`.

        Returns the function that ends the watch; None if the engine has no watch. Some writes may
        be missed.
        """
        ...

    async def time(self) -> datetime | None:
        """Return the server's time to the second; None if it reports none."""
        ...

    async def describe(self) -> Mapping[str, str]:
        """Return a short description for operators, by name."""
        ...

    async def health_warnings(self) -> list[str]:
        """Return health warnings; empty if all is well."""
        ...

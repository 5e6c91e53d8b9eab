"""Engine interface: all that the key-value store needs of a database.

A key has two parts. Keys of one `part` are ordered by `sort`, as text compares by its UTF-8 bytes.
There is no order across parts, and no read spans them at one moment.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from outlast.errors import StoreCorrupt

Value = Mapping[str, Any]
"""JSON object: text, whole numbers, booleans, None, and lists of those."""


LAST: Final = "last"
"""Field of a counter record."""


class Key(NamedTuple):
    """Address of a record."""

    part: str
    sort: str


class DamagedValue(Mapping[str, Any]):
    """Value of a record that does not parse; every look into it raises StoreCorrupt."""

    def __init__(self, key: Key, why: str) -> None:
        self.key = key
        self.why = why

    def __getitem__(self, name: str) -> NoReturn:
        self.refuse()

    def refuse(self) -> NoReturn:
        """Raise StoreCorrupt."""
        raise StoreCorrupt(f"{self}; `outlast verify` lists all such records")

    def __str__(self) -> str:
        """Return what is wrong with which record, and what to do."""
        where = f"{self.key.part} / {self.key.sort}"
        return f"the record {where} is damaged: {self.why}; correct or delete it"

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        self.refuse()

    def __len__(self) -> int:
        return self[""]


@dataclass(frozen=True, slots=True)
class StoredItem:
    """A record as it was read. Every write of a key gives it a new `version`."""

    key: Key
    value: Value
    version: str

    @property
    def damage(self) -> str | None:
        """Why the record does not parse; None if it does."""
        return self.value.why if isinstance(self.value, DamagedValue) else None


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

    @property
    def size(self) -> int:
        """Bytes of the key, and of the value as JSON."""
        text = "" if self.value is None else json.dumps(self.value, ensure_ascii=False)
        return sum(len(each.encode()) for each in (*self.key, text))


@dataclass(frozen=True, slots=True)
class ServerTime:
    """A server's time to the second, in the answer to a request.

    `sent` and `received` are readings of this machine's monotonic clock, in microseconds.
    """

    at: datetime
    sent: int
    received: int


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
    """Limits and intervals of an engine.

    Byte limits leave room for what a server adds; sizes are those of `Write.size`.

    Without a `status_delay`, every transaction may compare one record beyond `most_writes`, and
    compares the transfer status.
    """

    most_writes: int  # records that one transaction may write or compare
    most_bytes: int  # bytes that one transaction may write
    most_record_bytes: int  # bytes of one record
    poll: float  # seconds between two polls without a notification
    beat: float  # seconds between two heartbeats of a lock holder
    shards: int = 1  # partitions over which jobs are spread
    partition_units: int | None = None  # write units that one partition takes per second
    status_delay: float | None = None  # seconds a transfer waits for writes that do not compare


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
        whether it was written before it returns. Raises PayloadTooLarge for more bytes than the
        server takes.
        """
        ...

    async def advance(self, counter: Key, by: int) -> int:
        """Return the last of `by` new numbers in a row, higher than all before.

        The field LAST of the counter's record is a number that all new ones exceed. Numbers may be
        skipped.
        """
        ...

    async def last_number(self, counter: Key) -> int:
        """Return a number that none of those given so far exceeds, and every later one does."""
        ...

    def watch(
        self, parts: Sequence[str], heard: Callable[[Write], None]
    ) -> Callable[[], None] | None:
        """Call `heard` for records put into parts that begin with one of `parts`.

        Returns the function that ends the watch; None if the engine has no watch. Some writes may
        be missed.
        """
        ...

    async def time(self) -> ServerTime | None:
        """Ask for the server's time; None if it reports none."""
        ...

    @property
    def latest_time(self) -> ServerTime | None:
        """The server's time in the latest answer of any request; None if it reports none."""
        ...

    async def describe(self) -> Mapping[str, str]:
        """Return a short description for operators, by name."""
        ...

    def connection_warnings(self) -> list[str]:
        """Return warnings about the connection of an open engine, without a request."""
        ...

    async def health_warnings(self) -> list[str]:
        """Return health warnings; empty if all is well."""
        ...

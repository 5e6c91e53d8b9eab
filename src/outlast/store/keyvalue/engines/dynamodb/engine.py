"""DynamoDB engine: one table with `PK` and `SK`, conditional writes, boto3 in threads."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from outlast.core.address import is_loopback, shown_address
from outlast.errors import StoreBusy, StoreReadOnly
from outlast.store.keyvalue.engine import (
    LAST,
    Conditions,
    Key,
    KeyRange,
    Limits,
    ServerTime,
    StoredItem,
    Write,
)
from outlast.store.keyvalue.engines.dynamodb.items import (
    condition,
    entry,
    key_item,
    mark_of,
    put_item,
)
from outlast.store.keyvalue.engines.dynamodb.refusals import CONFLICTS
from outlast.store.keyvalue.engines.dynamodb.table import EXPIRES_AT, Table
from outlast.store.keyvalue.pacing import BUSY_OR_UNAVAILABLE, RequestPace

MOST_WRITES: Final = 100
"""Writes in one transaction."""

LEAST_WRITES: Final = 10
"""Writes that one transaction must take: the most that are never split."""

MOST_BYTES: Final = 3_500_000
"""Bytes of one transaction: AWS takes 4 MB."""

MOST_RECORD_BYTES: Final = 400_000
"""Bytes of one item: AWS takes 400 KB, names included."""

PARTITION_UNITS: Final = 1_000
"""Write units that one partition key takes per second, on any table."""

BEAT: Final = 5.0
POLL: Final = 5.0
STATUS_DELAY: Final = 3.0
THREADS: Final = 16
BATCH: Final = 100
"""Keys in one batch read."""

MAX_CONFLICTS: Final = 12
"""Times that a transaction is sent while others write the same items."""


class DynamoDBEngine:
    """`DynamoDBEngine("jobs", region="eu-central-1")`; boto3 finds the credentials."""

    def __init__(
        self,
        table: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        prefix: str = "",
        beat: float = BEAT,
        most_writes: int = MOST_WRITES,
        status_delay: float = STATUS_DELAY,
        threads: ThreadPoolExecutor | None = None,
        pace: RequestPace | None = None,
    ) -> None:
        """Prepare an engine on a table; `open` connects.

        `prefix` goes before every `PK`, for several stores in one table. `status_delay` is how long
        a transfer waits for writes, which do not compare its status: a compared item is billed as
        a written one, and one item compared by all would be a hot one. `threads` stay with the
        caller; without them, the engine has its own from `open` to `close`.
        """
        self._prefix = prefix
        self.leases = None  # DynamoDB may delete expired items days later
        self.limits = Limits(
            most_writes=most_writes,
            most_bytes=MOST_BYTES,
            most_record_bytes=MOST_RECORD_BYTES,
            poll=POLL,
            beat=beat,
            status_delay=status_delay,
            partition_units=PARTITION_UNITS,
        )
        self._table = Table(table, region=region, endpoint=endpoint, threads=THREADS)
        self._pace = pace or RequestPace()
        self._caller_threads = threads
        self._threads: ThreadPoolExecutor | None = None
        self._marks = secrets.token_hex(8)
        self._count = 0

    def exists(self) -> bool:
        """Return True if the table exists."""
        request = partial(self._table.ask, self._table.exists)
        return self._pace.repeat_blocking(request, on=BUSY_OR_UNAVAILABLE)

    async def open(self) -> None:
        """Start the threads, and create the table if it does not exist."""
        if self._threads is None:
            own = self._caller_threads or ThreadPoolExecutor(THREADS, thread_name_prefix="dynamodb")
            self._threads = own
        await self._call(self._table.prepare)

    async def migrate(self) -> None:
        """Turn on item expiry, which a manually created table lacks."""
        await self._call(self._table.expire)

    async def close(self) -> None:
        """Stop the engine's own threads; idempotent."""
        if self._threads is not None:
            threads, self._threads = self._threads, None
            if threads is not self._caller_threads:
                await asyncio.to_thread(threads.shutdown)

    async def release_loop(self) -> None:
        """No-op: threads belong to no loop."""

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        """Return records in the order of `keys`, by consistent batch reads."""
        wanted = list(dict.fromkeys(keys))
        batches = [wanted[n : n + BATCH] for n in range(0, len(wanted), BATCH)]
        answers = await asyncio.gather(*(self._get(batch) for batch in batches))
        found = {each.key: each for answer in answers for each in answer}
        return [found.get(key) for key in keys]

    async def _get(self, keys: Sequence[Key]) -> list[StoredItem]:
        found: list[StoredItem] = []
        left = [key_item(key, self._prefix) for key in keys]
        while left:
            items, left = await self._call(partial(self._table.read, left))
            found += [entry(item, self._prefix) for item in items]
        return found

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        """Return the first records of a key range in order, or the last ones in reverse."""
        if span.end is not None and span.start >= span.end:
            return []
        found: list[StoredItem] = []
        own, after = KeyRange(self._prefix + span.part, span.start, span.end), None
        while len(found) < limit:
            ask = partial(self._table.query, own, limit - len(found), after, reverse=reverse)
            items, after = await self._call(ask)
            entries = (entry(item, self._prefix) for item in items)
            found += [each for each in entries if each.key.sort != span.end]
            if after is None:
                break
        return found[:limit]

    async def scan(self, start: str) -> AsyncIterator[StoredItem]:
        """Yield all records of parts that begin with `start`; reads the whole table."""
        after = None
        while True:
            items, after = await self._call(partial(self._table.scan, self._prefix + start, after))
            for item in items:
                yield entry(item, self._prefix)
            if after is None:
                return

    async def ranges(self, asked: Sequence[tuple[KeyRange, int]]) -> list[list[StoredItem]]:
        """Return the first records of each key range, by concurrent queries."""
        return await asyncio.gather(*(self.range(span, limit=limit) for span, limit in asked))

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        """Write everything if all conditions hold; repeat on conflicts and throttling."""
        self._count += 1
        mark = f"{self._marks}{self._count:x}"
        items = [self._operation(write, conditions, mark) for write in writes]
        looked_at = conditions.keys() - {write.key for write in writes}
        items += [self._check(key, conditions[key]) for key in looked_at]
        for number in range(MAX_CONFLICTS):
            reasons = await self._call(partial(self._table.write, items, mark))
            if not reasons:
                return True
            if not CONFLICTS & reasons:
                return await self._is_ours(writes, mark)
            await self._pace.pause(number)
        if await self._is_ours(writes, mark):
            return True
        raise StoreBusy(
            f"other transactions wrote the same items of table {self._table.name} {MAX_CONFLICTS} "
            "times in a row; nothing was written, so try again"
        )

    async def advance(self, counter: Key, by: int) -> int:
        """Add to a counter in one atomic request, and return it."""
        self._count += 1
        mark = f"{self._marks}{self._count:x}"
        where = key_item(counter, self._prefix)
        last: int = await self._call(partial(self._table.advance, where, by, mark))
        return last

    async def last_number(self, counter: Key) -> int:
        """Return the counter."""
        [there] = await self.get([counter])
        return there.value[LAST] if there else 0

    async def _is_ours(self, writes: Sequence[Write], mark: str) -> bool:
        """Return True if an earlier attempt, whose reply was lost, wrote it."""
        put = next((write for write in writes if write.value is not None), None)
        [found] = [None] if put is None else await self.get([put.key])
        return found is not None and mark_of(found.version) == mark

    def watch(
        self,
        parts: Sequence[str],
        heard: Callable[[Write], None],
    ) -> None:
        """No watch: a table's stream lags and costs; polling finds other processes' writes."""

    async def time(self) -> ServerTime | None:
        """Ask for the server's time."""
        await self._call(self._table.describe)
        return self._table.latest_time

    @property
    def latest_time(self) -> ServerTime | None:
        """The server's time in the latest answer."""
        return self._table.latest_time

    async def describe(self) -> Mapping[str, str]:
        """Return table name, status, item count and expiry."""
        described = await self._call(self._table.describe)
        return {
            "engine": "DynamoDB",
            "table": self._table.name,
            "status": described["TableStatus"],
            "items": f"{described['ItemCount']:,} (counted every six hours)",
            "expiry": await self._call(self._expiry),
        }

    def _expiry(self) -> str:
        try:
            name = self._table.expires_by()
        except StoreReadOnly:
            return "unknown: no permission to read it"
        if not name:
            return "off; `outlast db migrate` turns it on"
        return f"by {name}" if name == EXPIRES_AT else f"by {name}, so tombstones stay"

    def connection_warnings(self) -> list[str]:
        """Return a warning if requests leave this machine over plain HTTP."""
        endpoint = self._table.endpoint
        parts = urlsplit(endpoint)
        if parts.scheme != "http" or is_loopback(parts.netloc):
            return []
        warning = (
            f"requests to DynamoDB go over plain HTTP to {shown_address(endpoint)}: jobs are sent "
            "in clear; write endpoint=https://…"
        )
        return [warning]

    async def health_warnings(self) -> list[str]:
        """Return no warnings."""
        return []

    def _operation(self, write: Write, conditions: Conditions, mark: str) -> dict[str, Any]:
        where = key_item(write.key, self._prefix)
        own: dict[str, Any] = {"TableName": self._table.name}
        if write.value is None:
            kind, own = "Delete", {**own, "Key": where}
        else:
            kind, own = "Put", {**own, "Item": put_item(where, write.value, mark)}
        if write.key in conditions:
            own |= condition(conditions[write.key])
        return {kind: own}

    def _check(self, key: Key, version: str | None) -> dict[str, Any]:
        where = {"TableName": self._table.name, "Key": key_item(key, self._prefix)}
        return {"ConditionCheck": {**where, **condition(version)}}

    async def _call(self, ask: Callable[[], Any]) -> Any:
        if self._threads is None:
            raise RuntimeError("the engine is not open")
        run = asyncio.get_running_loop().run_in_executor
        request = partial(run, self._threads, self._table.ask, ask)
        return await self._pace.repeat(request, on=BUSY_OR_UNAVAILABLE)

"""DynamoDB engine: one table with `PK` and `SK`, conditional writes, boto3 in threads."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any, Final

from outlast.errors import StoreBusy, StoreReadOnly
from outlast.store.keyvalue.engine import Conditions, Key, KeyRange, Limits, StoredItem, Write
from outlast.store.keyvalue.engines.dynamodb.items import VERSION, entry, key_item, put_item
from outlast.store.keyvalue.engines.dynamodb.table import EXPIRES_AT, Table

MOST_WRITES: Final = 100
"""Writes in one transaction: AWS takes 100, DynamoDB Local takes 10."""

BEAT: Final = 5.0
POLL: Final = 5.0
THREADS: Final = 16
BATCH: Final = 100
"""Keys in one batch read."""

MAX_ATTEMPTS: Final = 12
MAX_PAUSE_S: Final = 1.0
FIRST_PAUSE_S: Final = 0.02

_AGAIN: Final = frozenset(
    {
        "TransactionConflict",
        "ThrottlingError",
        "ProvisionedThroughputExceeded",
        "TransactionInProgressException",
        "TransactionConflictException",
    }
)
"""Codes of a conflict with another request, or of throttling: the request is repeated."""


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
        threads: ThreadPoolExecutor | None = None,
    ) -> None:
        """Prepare an engine on a table; `open` connects.

        `prefix` goes before every `PK`, for several stores in one table. `threads` stay with the
        caller; without them, the engine has its own from `open` to `close`.
        """
        self._prefix = prefix
        self.leases = None  # DynamoDB may delete expired items days later
        self.limits = Limits(most_writes=most_writes, poll=POLL, beat=beat)
        self._table = Table(table, region=region, endpoint=endpoint, threads=THREADS)
        self._caller_threads = threads
        self._threads: ThreadPoolExecutor | None = None
        self._marks = secrets.token_hex(8)
        self._count = 0

    def exists(self) -> bool:
        """Return True if the table exists."""
        return self._table.exists()

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
        for number in range(MAX_ATTEMPTS):
            items, left = await self._call(partial(self._table.read, left))
            found += [entry(item, self._prefix) for item in items]
            if not left:
                return found
            await asyncio.sleep(_pause(number))
        raise StoreBusy(
            f"DynamoDB throttled the read: keys were still unprocessed after {MAX_ATTEMPTS} "
            "attempts; retry later or raise the table's capacity"
        )

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
        for number in range(MAX_ATTEMPTS):
            reasons = await self._call(partial(self._table.write, items, mark))
            if not reasons:
                return True
            if not _AGAIN & reasons:
                return await self._is_ours(writes, mark)
            await asyncio.sleep(_pause(number))
        return await self._is_ours(writes, mark)

    async def advance(self, counter: Key, by: int) -> int:
        """Add to a counter in one atomic request, and return it."""
        self._count += 1
        mark = f"{self._marks}{self._count:x}"
        where = key_item(counter, self._prefix)
        last: int = await self._call(partial(self._table.advance, where, by, mark))
        return last

    async def _is_ours(self, writes: Sequence[Write], mark: str) -> bool:
        """Return True if an earlier attempt, whose reply was lost, wrote it."""
        put = next((write for write in writes if write.value is not None), None)
        [found] = [None] if put is None else await self.get([put.key])
        return found is not None and found.version == mark

    def watch(
        self,
        parts: Sequence[str],
        heard: Callable[[Write], None],
    ) -> None:
        """No watch: a table's stream lags and costs; polling finds other processes' writes."""

    async def time(self) -> datetime | None:
        """Return the server's time."""
        await self._call(self._table.describe)
        return self._table.date

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
            own |= _condition(conditions[write.key])
        return {kind: own}

    def _check(self, key: Key, version: str | None) -> dict[str, Any]:
        where = {"TableName": self._table.name, "Key": key_item(key, self._prefix)}
        return {"ConditionCheck": {**where, **_condition(version)}}

    async def _call(self, ask: Callable[[], Any]) -> Any:
        if self._threads is None:
            raise RuntimeError("the engine is not open")
        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)


def _condition(version: str | None) -> dict[str, Any]:
    if version is None:
        return {"ConditionExpression": "attribute_not_exists(PK)"}
    return {
        "ConditionExpression": f"{VERSION} = :version",
        "ExpressionAttributeValues": {":version": {"S": version}},
    }


def _pause(number: int) -> float:
    """Return a random pause (full jitter), so that rivals do not meet again."""
    most = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**number)
    return random.uniform(0, most)  # noqa: S311 - only spreads retries

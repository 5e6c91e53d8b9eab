"""etcd engine: records under one prefix, compare-and-swap transactions, watch."""

import asyncio
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from outlast.errors import StoreUnavailable
from outlast.store.keyvalue.engine import (
    LAST,
    Conditions,
    Key,
    KeyRange,
    Limits,
    StoredItem,
    Value,
    Write,
)
from outlast.store.keyvalue.engines.etcd.client import (
    RETRY_PAUSE_S,
    TOTAL_TIMEOUT_S,
    Cluster,
    EtcdClient,
    RequestOutcomeUnknown,
)
from outlast.store.keyvalue.engines.etcd.leases import EtcdLeases
from outlast.store.keyvalue.engines.etcd.watch import EtcdWatch

MOST_OPERATIONS: Final = 128
"""Operations in one transaction, by the server's default."""

RANGE: Final = 1_000
"""Records in one response, to bound its size."""

BEAT: Final = 1.0
_MARK: Final = "_"
"""Field in the first record of each transaction, by which a lost reply is resolved."""


class EtcdEngine:
    """`EtcdEngine(Cluster(hosts=("a:2379", "b:2379")), prefix="outlast")`."""

    def __init__(
        self, cluster: Cluster, *, prefix: str, beat: float = BEAT, timeout: float = TOTAL_TIMEOUT_S
    ) -> None:
        self.limits = Limits(most_writes=MOST_OPERATIONS, poll=0.5, beat=beat)
        self._client = EtcdClient(cluster, timeout=timeout)
        self.leases = EtcdLeases(self._client, self._operation)
        self._timeout = timeout
        self._prefix = prefix
        self._marks = secrets.token_hex(8)
        self._count = 0
        self._watches: list[EtcdWatch] = []

    def exists(self) -> bool:
        """Return True: a prefix needs no creation."""
        return True

    async def open(self) -> None:
        """Check that the cluster answers."""
        await self._client.ask("/v3/maintenance/status", {})

    async def close(self) -> None:
        """End the watches and close the client."""
        for watch in self._watches:
            await watch.stop()
        self._watches = []
        await self._client.close()

    async def release_loop(self) -> None:
        """Close the running loop's session."""
        await self._client.release_loop()

    async def get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        """Return records in the order of `keys`, by read-only transactions."""
        found: list[StoredItem | None] = []
        for start in range(0, len(keys), MOST_OPERATIONS):
            found += await self._get(keys[start : start + MOST_OPERATIONS])
        return found

    async def _get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        reads = [{"request_range": {"key": self._text(key)}} for key in keys]
        answer = await self._client.ask("/v3/kv/txn", {"success": reads})
        each = [r["response_range"].get("kvs", []) for r in answer.get("responses", [])]
        return [self._entry(kvs[0]) if kvs else None for kvs in each]

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        """Return the first records of a key range in order, or the last ones in reverse."""
        found: list[StoredItem] = []
        start, end = self._start(span), self._end(span)
        while len(found) < limit:
            size = min(RANGE, limit - len(found))
            page = await self._page(start, end, size, reverse=reverse)
            found += page
            if len(page) < size:
                break
            if reverse:
                end = self._bytes(page[-1].key)
            else:
                start = self._bytes(page[-1].key) + b"\0"
        return found

    async def scan(self, start: str) -> AsyncIterator[StoredItem]:
        """Yield all records of parts that begin with `start`."""
        first = self._part_start(start)
        here, end = first, first[:-1] + bytes([first[-1] + 1])
        while page := await self._page(here, end, RANGE, reverse=False):
            for entry in page:
                yield entry
            here = self._bytes(page[-1].key) + b"\0"

    async def ranges(self, asked: Sequence[tuple[KeyRange, int]]) -> list[list[StoredItem]]:
        """Return the first records of each key range, in one read-only transaction.

        Ranges longer than a page are read on their own.
        """
        if len(asked) > MOST_OPERATIONS:
            rest = await self.ranges(asked[MOST_OPERATIONS:])
            return await self.ranges(asked[:MOST_OPERATIONS]) + rest
        answer = await self._client.ask("/v3/kv/txn", {"success": [self._read(*a) for a in asked]})
        each = [r["response_range"].get("kvs", []) for r in answer.get("responses", [])]
        found = [[self._entry(kv) for kv in kvs] for kvs in each]
        return [
            page if len(page) < RANGE or limit <= RANGE else await self.range(span, limit=limit)
            for page, (span, limit) in zip(found, asked, strict=True)
        ]

    def _read(self, span: KeyRange, limit: int) -> dict[str, Any]:
        start, end = _b64(self._start(span)), _b64(self._end(span))
        return {"request_range": {"key": start, "range_end": end, "limit": min(limit, RANGE)}}

    async def _page(
        self, start: bytes, end: bytes, limit: int, *, reverse: bool
    ) -> list[StoredItem]:
        body: dict[str, Any] = {"key": _b64(start), "range_end": _b64(end), "limit": str(limit)}
        if reverse:
            body |= {"sort_order": "DESCEND", "sort_target": "KEY"}
        answer = await self._client.ask("/v3/kv/range", body)
        return [self._entry(kv) for kv in answer.get("kvs", [])]

    async def transact(self, conditions: Conditions, writes: Sequence[Write]) -> bool:
        """Write everything if all conditions hold.

        Repeats the request until etcd replies: the conditions let it happen only once.
        """
        marked, mark = self._marked(writes)
        body = {
            "compare": [self._compare(key, version) for key, version in conditions.items()],
            "success": [self._operation(write) for write in marked],
        }
        clock, lost = asyncio.get_running_loop().time, False
        over = clock() + self._timeout
        while True:
            try:
                answer = await self._client.ask_once("/v3/kv/txn", body)
                is_done: bool = answer.get("succeeded", False)
                return is_done or (lost and await self._is_ours(marked, mark))
            except RequestOutcomeUnknown as error:
                lost = True
                if clock() > over:
                    raise self._unknown(error) from error
                await asyncio.sleep(RETRY_PAUSE_S)

    async def advance(self, counter: Key, by: int) -> int:
        """Add to a counter by compare-and-swap, and return it."""
        while True:
            [there] = await self.get([counter])
            last: int = by + (there.value[LAST] if there else 0)
            conditions = {counter: there.version if there else None}
            if await self.transact(conditions, [Write(counter, {LAST: last})]):
                return last

    def _unknown(self, error: RequestOutcomeUnknown) -> StoreUnavailable:
        told = self._client.unreachable(error)
        return StoreUnavailable(f"{told}. The last write may have happened: send it again")

    async def _is_ours(self, writes: Sequence[Write], mark: str) -> bool:
        """Return True if an earlier attempt, whose reply was lost, wrote it."""
        put = next((write for write in writes if write.value is not None), None)
        if put is None:
            found = await self.get([write.key for write in writes])
            return all(entry is None for entry in found)
        answer = await self._client.ask("/v3/kv/range", {"key": self._text(put.key)})
        values = [json.loads(b64decode(kv["value"])) for kv in answer.get("kvs", [])]
        return any(value.get(_MARK) == mark for value in values)

    def watch(self, parts: Sequence[str], heard: Callable[[Write], None]) -> Callable[[], None]:
        """Watch parts, and return the function that ends the watch."""
        starts = [self._part_start(part) for part in parts]
        watch = EtcdWatch(self._client, starts, lambda kv: heard(self._write(kv)))
        self._watches.append(watch)
        return watch.cancel

    async def time(self) -> datetime | None:
        """Return the server's time."""
        await self._client.ask("/v3/maintenance/status", {})
        return self._client.date

    async def describe(self) -> Mapping[str, str]:
        """Return version, endpoints, prefix and size."""
        status = await self._client.ask("/v3/maintenance/status", {})
        return {
            "engine": f"etcd {status['version']}",
            "endpoints": self._client.where,
            "prefix": self._prefix,
            "size": f"{int(status['dbSize']) / 2**20:.1f} MiB",
        }

    async def health_warnings(self) -> list[str]:
        """Return no warnings."""
        return []

    def _marked(self, writes: Sequence[Write]) -> tuple[list[Write], str]:
        self._count += 1
        mark = f"{self._marks}{self._count:x}"
        first = next((n for n, write in enumerate(writes) if write.value is not None), None)
        marked = list(writes)
        if first is not None:
            value = {**(marked[first].value or {}), _MARK: mark}
            marked[first] = Write(marked[first].key, value)
        return marked, mark

    def _compare(self, key: Key, version: str | None) -> dict[str, Any]:
        text = self._text(key)
        if version is None:
            return {"key": text, "target": "VERSION", "result": "EQUAL", "version": "0"}
        return {"key": text, "target": "MOD", "result": "EQUAL", "mod_revision": version}

    def _operation(self, write: Write) -> dict[str, Any]:
        if write.value is None:
            return {"request_delete_range": {"key": self._text(write.key)}}
        value = json.dumps(write.value, ensure_ascii=False, separators=(",", ":")).encode()
        return {"request_put": {"key": self._text(write.key), "value": _b64(value)}}

    def _entry(self, kv: Mapping[str, str]) -> StoredItem:
        value: dict[str, Any] = json.loads(b64decode(kv["value"]))
        value.pop(_MARK, None)
        return StoredItem(self._key(kv["key"]), value, kv["mod_revision"])

    def _write(self, kv: Mapping[str, str]) -> Write:
        entry_value: Value = json.loads(b64decode(kv.get("value", ""))) if kv.get("value") else {}
        return Write(self._key(kv["key"]), entry_value)

    def _key(self, text: str) -> Key:
        part, _, sort = b64decode(text).decode().removeprefix(f"{self._prefix}/").partition("\0")
        return Key(part, sort)

    def _bytes(self, key: Key) -> bytes:
        # NUL occurs in no part, so that no part is a prefix of another.
        return f"{self._prefix}/{key.part}\0{key.sort}".encode()

    def _text(self, key: Key) -> str:
        return _b64(self._bytes(key))

    def _start(self, span: KeyRange) -> bytes:
        return self._bytes(Key(span.part, span.start))

    def _end(self, span: KeyRange) -> bytes:
        if span.end is None:
            return f"{self._prefix}/{span.part}\1".encode()
        return self._bytes(Key(span.part, span.end))

    def _part_start(self, part: str) -> bytes:
        return f"{self._prefix}/{part}".encode()


def _b64(text: bytes) -> str:
    return b64encode(text).decode()

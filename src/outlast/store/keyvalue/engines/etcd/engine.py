"""etcd engine: records under one prefix, compare-and-swap transactions, watch."""

import asyncio
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from outlast.errors import StoreFull, StoreUnavailable
from outlast.store.keyvalue.engine import (
    LAST,
    Conditions,
    DamagedValue,
    Key,
    KeyRange,
    Limits,
    ServerTime,
    StoredItem,
    Value,
    Write,
)
from outlast.store.keyvalue.engines.etcd import health
from outlast.store.keyvalue.engines.etcd.client import (
    TOTAL_TIMEOUT_S,
    Cluster,
    EtcdClient,
    RequestOutcomeUnknown,
)
from outlast.store.keyvalue.engines.etcd.leases import EtcdLeases
from outlast.store.keyvalue.engines.etcd.page_sizes import PageSizes
from outlast.store.keyvalue.engines.etcd.watch import EtcdWatch
from outlast.store.keyvalue.pacing import RequestPace

MOST_OPERATIONS: Final = 128
"""Operations in one transaction, by the server's default."""

MOST_BYTES: Final = 1_200_000
"""Bytes of one transaction: the server takes 1.5 MiB by default, conditions and keys included."""

BLOCK: Final = 4_096
"""Numbers that belong to one revision."""

BEAT: Final = 1.0
_MARK: Final = "_"
"""Field in the first record of each transaction, by which a lost reply is resolved."""


class EtcdEngine:
    """`EtcdEngine(Cluster(hosts=("a:2379", "b:2379")), prefix="outlast")`."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        prefix: str,
        beat: float = BEAT,
        timeout: float = TOTAL_TIMEOUT_S,
        pace: RequestPace | None = None,
    ) -> None:
        self.limits = Limits(
            most_writes=MOST_OPERATIONS - 1,
            most_bytes=MOST_BYTES,
            most_record_bytes=MOST_BYTES,
            poll=0.5,
            beat=beat,
        )
        self._client = EtcdClient(cluster, timeout=timeout, pace=pace)
        self.leases = EtcdLeases(self._client, self._operation)
        self._timeout = timeout
        self._prefix = prefix
        self._marks = secrets.token_hex(8)
        self._count = 0
        self._watches: list[EtcdWatch] = []
        self._pages = PageSizes()
        self._numbers: dict[Key, int] = {}

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
        while len(found) < len(keys):
            left = keys[len(found) :]
            most = min(self._pages.of(key.part, unknown=MOST_OPERATIONS) for key in left)
            found += await self._get(left[: min(most, MOST_OPERATIONS)])
        return found

    async def _get(self, keys: Sequence[Key]) -> list[StoredItem | None]:
        each = await self._read_together([{"key": self._text(key)} for key in keys])
        for key, kvs in zip(keys, each, strict=True):
            self._pages.note(key.part, kvs)
        return [self._entry(kvs[0]) if kvs else None for kvs in each]

    async def _read_together(self, ranges: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
        """Return what each range holds, in one read-only transaction.

        A full member before 3.5.6 refuses transactions of any kind, but answers single reads.
        """
        reads = {"success": [{"request_range": each} for each in ranges]}
        try:
            answer = await self._client.ask("/v3/kv/txn", reads)
        except StoreFull:
            told = [await self._client.ask("/v3/kv/range", each) for each in ranges]
        else:
            told = [each["response_range"] for each in answer.get("responses", [])]
        return [each.get("kvs", []) for each in told]

    async def range(self, span: KeyRange, *, limit: int, reverse: bool = False) -> list[StoredItem]:
        """Return the first records of a key range in order, or the last ones in reverse."""
        found: list[StoredItem] = []
        start, end = self._start(span), self._end(span)
        while len(found) < limit:
            size = min(self._pages.of(span.part), limit - len(found))
            page = await self._page(span.part, start, end, size, reverse=reverse)
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
        while page := await self._page(start, here, end, self._pages.of(start), reverse=False):
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
        sizes = [min(limit, self._pages.of(span.part)) for span, limit in asked]
        each = await self._read_together(
            [self._read(span, size) for (span, _), size in zip(asked, sizes, strict=True)]
        )
        for (span, _), kvs in zip(asked, each, strict=True):
            self._pages.note(span.part, kvs)
        found = [[self._entry(kv) for kv in kvs] for kvs in each]
        return [
            page if len(page) < size or limit == size else await self.range(span, limit=limit)
            for page, size, (span, limit) in zip(found, sizes, asked, strict=True)
        ]

    def _read(self, span: KeyRange, limit: int) -> dict[str, Any]:
        start, end = _b64(self._start(span)), _b64(self._end(span))
        return {"key": start, "range_end": end, "limit": limit}

    async def _page(
        self, part: str, start: bytes, end: bytes, limit: int, *, reverse: bool
    ) -> list[StoredItem]:
        body: dict[str, Any] = {"key": _b64(start), "range_end": _b64(end), "limit": str(limit)}
        if reverse:
            body |= {"sort_order": "DESCEND", "sort_target": "KEY"}
        kvs = (await self._client.ask("/v3/kv/range", body)).get("kvs", [])
        self._pages.note(part, kvs)
        return [self._entry(kv) for kv in kvs]

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
        for number in count():
            try:
                answer = await self._client.ask_once("/v3/kv/txn", body)
                is_done: bool = answer.get("succeeded", False)
                return is_done or (lost and await self._is_ours(marked, mark))
            except RequestOutcomeUnknown as error:
                lost = True
                if clock() > over:
                    raise self._unknown(error) from error
                await self._client.pace.pause(number)
        raise AssertionError  # `count` has no end

    async def advance(self, counter: Key, by: int) -> int:
        """Return the last of `by` numbers that belong to the revision of one unconditional put.

        Every revision has a block of numbers above the offset in the counter's record, so that
        concurrent callers never compete. More numbers than a block has raise the offset.
        """
        body: dict[str, Any] = {"success": [self._read_one(counter)]}
        before = self._numbers.get(counter, 0)
        if by > BLOCK:
            [there] = await self.get([counter])
            offset = by + (there.value[LAST] if there else 0)
            body["compare"] = [self._compare(counter, there.version if there else None)]
            body["success"] += [self._operation(Write(counter, {LAST: offset}))]
        else:
            ticket = Key(counter.part, f"{counter.sort}.ticket")
            body["success"] += [self._operation(Write(ticket, {}))]
        answer = await self._client.ask("/v3/kv/txn", body)  # asked twice, it skips numbers
        if not answer.get("succeeded", False):
            return await self.advance(counter, by)
        last = self._first_number(answer) + by - 1
        if last - by < before:
            await self._raise(counter, before)
            return await self.advance(counter, by)
        self._numbers[counter] = max(last, self._numbers.get(counter, 0))
        return last

    async def _raise(self, counter: Key, last: int) -> None:
        """Raise the offset: etcd was restored to an earlier revision while this engine was open."""
        [there] = await self.get([counter])
        version = there.version if there else None
        if last > (there.value[LAST] if there else 0):
            await self.transact({counter: version}, [Write(counter, {LAST: last})])

    async def last_number(self, counter: Key) -> int:
        """Return the last number of the present revision's block."""
        answer = await self._client.ask("/v3/kv/txn", {"success": [self._read_one(counter)]})
        return self._first_number(answer) + BLOCK - 1

    def _first_number(self, answer: Mapping[str, Any]) -> int:
        """Return the first number of the answer's revision; its first response is the counter."""
        found = answer["responses"][0]["response_range"].get("kvs", [])
        offset: int = self._entry(found[0]).value[LAST] if found else 0
        return offset + int(answer["header"]["revision"]) * BLOCK + 1

    def _read_one(self, key: Key) -> dict[str, Any]:
        return {"request_range": {"key": self._text(key)}}

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
        values = [_decoded(put.key, kv["value"]) for kv in answer.get("kvs", [])]
        return any(isinstance(value, dict) and value.get(_MARK) == mark for value in values)

    def watch(self, parts: Sequence[str], heard: Callable[[Write], None]) -> Callable[[], None]:
        """Watch parts, and return the function that ends the watch."""
        starts = [self._part_start(part) for part in parts]
        watch = EtcdWatch(self._client, starts, lambda kv: heard(self._write(kv)))
        self._watches.append(watch)
        return watch.cancel

    async def time(self) -> ServerTime | None:
        """Ask for the server's time."""
        await self._client.ask("/v3/maintenance/status", {})
        return self._client.latest_time

    @property
    def latest_time(self) -> ServerTime | None:
        """The server's time in the latest answer."""
        return self._client.latest_time

    async def describe(self) -> Mapping[str, str]:
        """Return version, endpoints, prefix and size."""
        status = await self._client.ask("/v3/maintenance/status", {})
        return {
            "engine": f"etcd {status['version']}",
            "endpoints": self._client.where,
            "prefix": self._prefix,
            "size": f"{int(status['dbSize']) / 2**20:.1f} MiB",
        }

    def connection_warnings(self) -> list[str]:
        """Return warnings about plain HTTP, and the file of the password."""
        return self._client.connection_warnings()

    async def health_warnings(self) -> list[str]:
        """Return warnings about alarms and the size of the database."""
        return health.warnings(await self._client.ask("/v3/maintenance/status", {}))

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
        key = self._key(kv["key"])
        value = _decoded(key, kv["value"])
        if isinstance(value, dict):
            value.pop(_MARK, None)
        return StoredItem(key, value, kv["mod_revision"])

    def _write(self, kv: Mapping[str, str]) -> Write:
        key = self._key(kv["key"])
        return Write(key, _decoded(key, kv["value"]) if kv.get("value") else {})

    def _key(self, text: str) -> Key:
        shown = b64decode(text).decode(errors="replace")  # other writers' keys may be no text
        part, _, sort = shown.removeprefix(f"{self._prefix}/").partition("\0")
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


def _decoded(key: Key, text: str) -> Value:
    """Return a stored JSON object; a DamagedValue for anything else."""
    try:
        value = json.loads(b64decode(text))
    except (ValueError, RecursionError) as error:
        return DamagedValue(key, f"it is no JSON that can be read: {error}"[:200])
    return value if isinstance(value, dict) else DamagedValue(key, "it is no JSON object")


def _b64(text: bytes) -> str:
    return b64encode(text).decode()

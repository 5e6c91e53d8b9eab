"""Row sync: makes one store equal to another, table by table, reading each row once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from outlast.store.contract.transfer import Moving, Row, TableKind, key_of
from outlast.store.rows.jobs import to_json_param

MIN_PAGE_ROWS: Final = 50
MAX_PAGE_ROWS: Final = 1000
"""Rows of a page at least and at most."""

PAGE_BYTES_LIMIT: Final = 4_000_000
"""Bytes of a page beyond which the next page has fewer rows."""

OnRows = Callable[[int], None]
"""Called with the number of rows handled since the last call."""


@dataclass(frozen=True, slots=True)
class TableDigest:
    """The number of rows of a table and the digest of all rows in key order."""

    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The result of one pass: the number of rows that differed, and the source's digests."""

    differed: int
    digests: dict[TableKind, TableDigest]


async def sync_rows(
    source: Moving, target: Moving, *, ended_only: bool, on_rows: OnRows
) -> SyncResult:
    """Write every row that differs into the target.

    A pass that finds no difference has compared all rows. With `ended_only`, used while the source
    accepts work, only ended jobs are copied and nothing is deleted.
    """
    differed = 0
    digests: dict[TableKind, TableDigest] = {}
    for kind in TableKind:
        if kind is TableKind.COUNTERS:
            await target.load(kind, await source.dump(kind, limit=MAX_PAGE_ROWS))
            continue
        table = _TableSync(source, target, kind, ended_only=ended_only)
        differed += await table.sync_rows(on_rows)
        digests[kind] = TableDigest(table.rows, table.digest.hexdigest())
    return SyncResult(differed, digests)


class _TableSync:
    """Syncs one table, page by page in key order on both sides."""

    def __init__(
        self, source: Moving, target: Moving, kind: TableKind, *, ended_only: bool
    ) -> None:
        self._source = source
        self._target = target
        self._kind = kind
        self._ended_only = ended_only
        self._target_rows = _RowCursor(target, kind)
        self._limit = MIN_PAGE_ROWS
        self.rows = 0
        self.digest = sha256()

    async def sync_rows(self, on_rows: OnRows) -> int:
        differed, after = 0, None
        while True:
            rows = await self._page(after)
            after = key_of(self._kind, rows[-1]) if rows else None
            differed += await self._write_differences(rows, after)
            on_rows(len(rows))
            if not rows:
                return differed

    async def _page(self, after: Row | None) -> list[Row]:
        rows = await self._source.dump(
            self._kind, after=after, limit=self._limit, ended_only=self._ended_only
        )
        text = to_json_param(rows).encode()
        self.digest.update(text[1:-1] + b"," if rows else b"")  # independent of the page size
        self.rows += len(rows)
        is_heavy = len(text) > PAGE_BYTES_LIMIT
        self._limit = (
            max(MIN_PAGE_ROWS, self._limit // 2)
            if is_heavy
            else min(MAX_PAGE_ROWS, self._limit * 2)
        )
        return rows

    async def _write_differences(self, rows: Sequence[Row], upto: Row | None) -> int:
        """Write missing and different rows to the target; delete rows that only it has."""
        there = await self._target_rows.upto(upto)
        here = {key_of(self._kind, row): row for row in rows}
        changed = [row for key, row in here.items() if there.get(key) != row]
        gone = [] if self._ended_only else [list(key) for key in there if key not in here]
        if changed or gone:
            await self._target.load(self._kind, changed, gone)
        return len(changed) + len(gone)


class _RowCursor:
    """Reads the rows of one table in key order, as far as requested."""

    def __init__(self, store: Moving, kind: TableKind) -> None:
        self._store = store
        self._kind = kind
        self._read: dict[tuple[Any, ...], Row] = {}
        self._last: tuple[Any, ...] | None = None
        self._is_exhausted = False

    async def upto(self, key: Row | None) -> dict[tuple[Any, ...], Row]:
        """Return the rows after the last call up to a key; without a key, all remaining rows."""
        end = None if key is None else tuple(key)
        while not self._is_exhausted and (end is None or self._last is None or self._last < end):
            await self._read_on()
        taken = {each: row for each, row in self._read.items() if end is None or each <= end}
        for each in taken:
            del self._read[each]
        return taken

    async def _read_on(self) -> None:
        page = await self._store.dump(self._kind, after=self._last, limit=MAX_PAGE_ROWS)
        self._is_exhausted = not page
        self._read |= {key_of(self._kind, row): row for row in page}
        self._last = key_of(self._kind, page[-1]) if page else self._last

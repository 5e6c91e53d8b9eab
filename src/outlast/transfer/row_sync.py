"""Making one store hold what another one holds, kind by kind, without reading either one twice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from outlast.store.contract.transfer import Moving, Row, TableKind, key_of
from outlast.store.rows.jobs import to_json_param

MIN_PAGE_ROWS: Final = 50
MAX_PAGE_ROWS: Final = 1000
"""How many rows a page has: the fewest, and the most."""

PAGE_BYTES_LIMIT: Final = 4_000_000
"""Bytes of a page after which the next one has fewer rows."""

OnRows = Callable[[int], None]
"""Called with how many more rows were looked at."""


@dataclass(frozen=True, slots=True)
class TableDigest:
    """What a store holds of one kind: how many rows, and a digest of all of them in order."""

    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What one pass found: how many rows differed, and what the source holds of each kind."""

    differed: int
    digests: dict[TableKind, TableDigest]


async def sync_rows(
    source: Moving, target: Moving, *, ended_only: bool, moved: OnRows
) -> SyncResult:
    """Write into the target whatever differs; a pass that finds nothing has compared all.

    `ended_only`, while the source works: jobs that have ended, and nothing is deleted.
    """
    differed = 0
    held: dict[TableKind, TableDigest] = {}
    for kind in TableKind:
        if kind is TableKind.COUNTERS:
            await target.load(kind, await source.dump(kind, limit=MAX_PAGE_ROWS))
            continue
        lane = _TableSync(source, target, kind, ended_only=ended_only)
        differed += await lane.sync_rows(moved)
        held[kind] = TableDigest(lane.rows, lane.digest.hexdigest())
    return SyncResult(differed, held)


class _TableSync:
    """One kind, page by page from the first key to the last, on both sides."""

    def __init__(
        self, source: Moving, target: Moving, kind: TableKind, *, ended_only: bool
    ) -> None:
        self._source = source
        self._target = target
        self._kind = kind
        self._ended_only = ended_only
        self._there = _RowCursor(target, kind)
        self._limit = MIN_PAGE_ROWS
        self.rows = 0
        self.digest = sha256()

    async def sync_rows(self, moved: OnRows) -> int:
        differed, after = 0, None
        while True:
            rows = await self._page(after)
            after = key_of(self._kind, rows[-1]) if rows else None
            differed += await self._even_out(rows, after)
            moved(len(rows))
            if not rows:
                return differed

    async def _page(self, after: Row | None) -> list[Row]:
        rows = await self._source.dump(
            self._kind, after=after, limit=self._limit, ended_only=self._ended_only
        )
        text = to_json_param(rows).encode()
        self.digest.update(text[1:-1] + b"," if rows else b"")  # however it is cut into pages
        self.rows += len(rows)
        heavy = len(text) > PAGE_BYTES_LIMIT
        self._limit = (
            max(MIN_PAGE_ROWS, self._limit // 2) if heavy else min(MAX_PAGE_ROWS, self._limit * 2)
        )
        return rows

    async def _even_out(self, rows: Sequence[Row], upto: Row | None) -> int:
        """Write what the target lacks of these, or has otherwise; delete what only it has."""
        there = await self._there.upto(upto)
        here = {key_of(self._kind, row): row for row in rows}
        changed = [row for key, row in here.items() if there.get(key) != row]
        gone = [] if self._ended_only else [list(key) for key in there if key not in here]
        if changed or gone:
            await self._target.load(self._kind, changed, gone)
        return len(changed) + len(gone)


class _RowCursor:
    """A store's rows of one kind in the order of their keys, taken as far as somebody asks."""

    def __init__(self, store: Moving, kind: TableKind) -> None:
        self._store = store
        self._kind = kind
        self._read: dict[tuple[Any, ...], Row] = {}
        self._last: tuple[Any, ...] | None = None
        self._is_over = False

    async def upto(self, key: Row | None) -> dict[tuple[Any, ...], Row]:
        """Those not taken yet, up to that key; without one, all of them."""
        end = None if key is None else tuple(key)
        while not self._is_over and (end is None or self._last is None or self._last < end):
            await self._read_on()
        taken = {each: row for each, row in self._read.items() if end is None or each <= end}
        for each in taken:
            del self._read[each]
        return taken

    async def _read_on(self) -> None:
        page = await self._store.dump(self._kind, after=self._last, limit=MAX_PAGE_ROWS)
        self._is_over = not page
        self._read |= {key_of(self._kind, row): row for row in page}
        self._last = key_of(self._kind, page[-1]) if page else self._last

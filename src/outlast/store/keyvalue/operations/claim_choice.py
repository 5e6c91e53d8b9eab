"""Choice of the jobs that one claim takes: the first that it may take, in claim order."""

from collections.abc import Collection
from datetime import datetime
from typing import Final

from outlast.clock import to_micros
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem, Value
from outlast.store.keyvalue.operations.claim_recovery import KeyValueClaimRequest
from outlast.store.keyvalue.unit_of_work import UnitOfWork

MIN_PAGE: Final = 10
MAX_PAGE: Final = 1_000


async def choose(
    unit: UnitOfWork,
    request: KeyValueClaimRequest,
    *,
    limit: int,
    most: int,
    now: datetime,
    first: list[StoredItem] | None = None,
    passed: Collection[str] = (),
) -> list[StoredItem]:
    """Return the ready entries that one claim takes, in claim order.

    `limit` of them may be of any kind, up to `most` in all if they may wait. `first` is the first
    page, if it has been read. `passed` are jobs that an earlier round could not claim.
    """
    chosen: list[StoredItem] = []
    names: set[str] = set()
    span, page = KeyRange(key_layout.READY + request.queue), page_size(most)
    while len(chosen) < most:
        entries = await unit.range(span, limit=page) if first is None else first
        first = None
        for entry in entries:
            if len(chosen) == most:
                break
            is_wanted = len(chosen) < limit or entry.value["can_wait"]
            is_wanted = is_wanted and entry.value["id"] not in passed
            if is_wanted and await _is_claimable(unit, request, entry.value, names, now):
                chosen.append(entry)
                names.add(entry.value.get("name", ""))
        if len(entries) < page:
            break
        span = KeyRange(span.part, entries[-1].key.sort + "\0")
    return chosen


def page_size(most: int, *, count: int = 0) -> int:
    """Return how many ready jobs to read for a claim of so many."""
    return max(min(max(MIN_PAGE, 2 * most), MAX_PAGE), min(most + count, MAX_PAGE))


async def _is_claimable(
    unit: UnitOfWork,
    request: KeyValueClaimRequest,
    value: Value,
    names: Collection[str],
    now: datetime,
) -> bool:
    if value["type"] not in request.types or value.get("deadline", to_micros(now)) < to_micros(now):
        return False
    name = value.get("name")
    if name is None:
        return True
    return name not in names and await unit.get(Key(key_layout.ONCE, name)) is None

"""The first read of a claim: the queue, its first jobs, and what must be done before."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange, StoredItem
from outlast.store.keyvalue.operations.claim_recovery import KeyValueClaimRequest
from outlast.store.keyvalue.operations.promotion import is_past, next_due
from outlast.store.keyvalue.repositories import queues
from outlast.store.keyvalue.repositories.queues import QueueRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork

MAX_DUE_READ: Final = 10
"""Entries of jobs that wait for a time that one claim reads; no more requests than one entry."""

MIN_PAGE: Final = 10
MAX_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class ClaimSnapshot:
    """First read of a claim; `has_pending_work`: a job is due, or an intent is pending.

    `due_in` is how long no job of the queue becomes due. The number of entries in `ready` is cut.
    """

    queue: QueueRecord
    ready: list[StoredItem]
    has_pending_work: bool
    due_in: timedelta | None


async def read_snapshot(
    context: StoreContext, request: KeyValueClaimRequest, most: int
) -> ClaimSnapshot:
    """Read what a claim begins with, in one request where the engine can."""
    name, now = request.queue, context.now()
    ready = max(page_size(most), min(most + request.count, MAX_PAGE))
    asked = [
        (KeyRange(key_layout.PENDING), 1),
        (KeyRange(key_layout.DUE), MAX_DUE_READ),
        (queues.span(name), 1),
        (KeyRange(key_layout.READY + name), ready),
    ]

    async def work(_: UnitOfWork) -> ClaimSnapshot:
        left, due, queue, ready = await context.engine.ranges(asked)
        is_due = any(is_past(entry, now) for entry in due)
        due_in = next_due(due, name, now, is_cut=len(due) == MAX_DUE_READ)
        return ClaimSnapshot(queues.found(name, queue), ready, bool(left or is_due), due_in)

    return await context.run_unit(work)


def page_size(most: int) -> int:
    """Return how many entries to read for a claim of that many jobs."""
    return min(max(MIN_PAGE, 2 * most), MAX_PAGE)

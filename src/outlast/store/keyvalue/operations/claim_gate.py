"""The queue gate of concurrent claims: after `pause` has returned, no claim ignores the pause.

Where a transaction compares for nothing, each transaction of a claim compares the queue's record.
Elsewhere `pause` waits `status_delay` seconds, and a claim that takes longer reads the queue again.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from outlast.core.decide import decide
from outlast.core.event import Released
from outlast.core.run import Claim
from outlast.errors import OperatorError
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem
from outlast.store.keyvalue.operations.apply import apply_changes
from outlast.store.keyvalue.operations.claim_recovery import KeyValueClaimRequest
from outlast.store.keyvalue.operations.promotion import is_past, next_due
from outlast.store.keyvalue.repositories import queues
from outlast.store.keyvalue.repositories.queues import QueueRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork

log = logging.getLogger("outlast.store")

MAX_DUE_READ: Final = 10
"""Entries of jobs that wait for a time that one claim reads; no more requests than one entry."""

PAUSED: Final = "queue_paused"
"""Reason of a run that is released because its queue was paused before it was opened."""


@dataclass(frozen=True, slots=True)
class ClaimGate:
    """A queue's record as a claim has read it, and when the read began."""

    name: str
    record: QueueRecord
    entry: StoredItem | None
    read_at: float

    def enter(self, unit: UnitOfWork) -> None:
        """Take the record as read by the first unit of work of the claim."""
        unit.take({self.key: self.entry})

    @property
    def key(self) -> Key:
        """Key of the queue's record."""
        return queues.key(self.name)

    async def admits(self, unit: UnitOfWork, context: StoreContext) -> bool:
        """Return False if the queue takes no concurrent claims; the commit requires its record."""
        if context.engine.limits.status_delay is not None:
            return True
        record = await queues.load(unit, self.name)
        unit.require(self.key)
        return not record.needs_serial_claims and record.shown(context.now()).pause is None

    async def confirmed(
        self, context: StoreContext, request: KeyValueClaimRequest, claims: Sequence[Claim]
    ) -> list[Claim]:
        """Return the claims that may start: none if they came late, and a pause before them.

        They are released then; one of which that is uncertain is looked up by the next claim.
        """
        delay = context.engine.limits.status_delay
        is_in_time = delay is None or 0 <= _time() - self.read_at < delay * 2 / 3
        if not claims or is_in_time or not await self._is_paused(context):
            return list(claims)
        log.info("queue %s was paused before its claim was written; released", self.name)
        for claim in claims:
            try:
                release = decide(claim, Released(PAUSED), new_id=context.ids.job)
                await apply_changes(context, [release])
            except OperatorError:
                doubtful = {claim.run_id: claim.job_id}
                context.unanswered_claims.note(request.holder, self.name, doubtful)
        return []

    async def _is_paused(self, context: StoreContext) -> bool:
        record = await queues.load(UnitOfWork(context.engine), self.name)
        return record.shown(context.now()).pause is not None


@dataclass(frozen=True, slots=True)
class ClaimSnapshot:
    """First read of a claim; `has_pending_work`: a job is due, or an intent is pending."""

    gate: ClaimGate
    ready: list[StoredItem]
    has_pending_work: bool
    due_in: timedelta | None  # how long no job of the queue becomes due


async def read_snapshot(context: StoreContext, name: str, size: int) -> ClaimSnapshot:
    """Read what a claim begins with, and up to `size` ready jobs, in one request if possible."""
    asked = [
        (KeyRange(key_layout.PENDING), 1),
        (KeyRange(key_layout.DUE), MAX_DUE_READ),
        (queues.span(name), 1),
        (KeyRange(key_layout.READY + name), size),
    ]

    async def work(_: UnitOfWork) -> ClaimSnapshot:
        began = _time()
        left, due, queue, ready = await context.engine.ranges(asked)
        gate = ClaimGate(name, queues.found(name, queue), next(iter(queue), None), began)
        now = context.now()
        is_due = any(is_past(entry, now) for entry in due)
        due_in = next_due(due, name, now, is_cut=len(due) == MAX_DUE_READ)
        return ClaimSnapshot(gate, ready, bool(left or is_due), due_in)

    return await context.run_unit(work)


def _time() -> float:
    """Return the event loop's time."""
    return asyncio.get_running_loop().time()

"""The history inspector: repairs damage that no crash can cause."""

import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Final, Protocol

from outlast.core.decide import Change, decide
from outlast.core.document import Document
from outlast.core.event import DetachedJobFound, Event, SuccessorMissing
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.state import Loss, State
from outlast.core.transition import yield_to_cancel
from outlast.errors import StoreMoved, StoreSealed
from outlast.store.contract import Capability, HasCapabilities
from outlast.store.contract.documents import Documents
from outlast.store.contract.jobs import Jobs
from outlast.store.contract.maintenance import RecoveryReads
from outlast.store.contract.runs import Runs
from outlast.store.contract.schedules import Schedules
from outlast.telemetry.events import emit

log = logging.getLogger("outlast.worker")

MAX_BATCH: Final = 500
"""Jobs in one page or write at most."""

INTERVAL: Final = timedelta(days=1)
"""Time between two inspections of a store."""

DOCUMENT: Final = ("maintenance", "history-inspection")
"""Kind and key of the document whose last write is the time of the last inspection."""


class InspectedStore(Jobs, Runs, RecoveryReads, Documents, Schedules, HasCapabilities, Protocol):
    """The pages of the store contract that an inspection needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRepairs:
    """Counts of one inspection, in the order of its steps."""

    finished: int = 0  # detached jobs ended or requeued as their last run says
    without_run: int = 0  # running jobs without a run, closed as lost
    continued: int = 0  # failed linked jobs that got their missing successor
    given_up: int = 0  # the same, without attempts left
    orphans: int = 0  # orphan runs, removed

    @property
    def actions(self) -> int:
        """Number of repairs."""
        return sum(asdict(self).values())


class HistoryInspector:
    """Reads every kept job and run, which takes longer the more history is kept.

    `outlast verify --repair` inspects. On stores without the capability PAID_READS the maintenance
    of one worker also does, after the first start on a store and then once per `INTERVAL`.
    """

    def __init__(self, store: InspectedStore, new_id: Callable[[], JobId]) -> None:
        self._store = store
        self._new_id = new_id

    async def inspect_if_due(self) -> HistoryRepairs:
        """Inspect if the last inspection is too long ago; of several workers one does it."""
        if Capability.PAID_READS in self._store.capabilities:
            return HistoryRepairs()
        last = await self._store.document(*DOCUMENT)
        is_due = last is None or await self._store.now() - last.updated_at >= INTERVAL
        if not is_due or not await self._record(last):
            return HistoryRepairs()
        return await self.inspect()

    async def inspect(self) -> HistoryRepairs:
        """Repair detached jobs, missing successors and orphan runs."""
        detached = [job async for job in all_pages(self._store.detached_jobs)]
        ended = [(job, event) for job in detached if (event := await self._last_run(job))]
        runless = [
            (job, DetachedJobFound(None, detail=_detail(job))) for job in detached if not job.token
        ]
        finished = await settle(self._store, ended, self._new_id)
        without_run = await settle(self._store, runless, self._new_id)
        event = SuccessorMissing(Loss.STARTUP_RECOVERY)
        unfollowed = [(job, event) async for job in all_pages(self._store.missing_successors)]
        followed = await settle(self._store, unfollowed, self._new_id)
        return HistoryRepairs(
            finished=len(finished),
            without_run=len(without_run),
            continued=followed.count(State.FAILED),
            given_up=followed.count(State.DEAD_LETTER),
            orphans=await self._orphans(),
        )

    async def _record(self, last: Document | None) -> bool:
        """Write the time of this inspection; False if another worker did or the store is sealed."""
        expected = None if last is None else last.version
        with suppress(StoreSealed, StoreMoved):
            value = json.dumps({})
            return bool(await self._store.swap(*DOCUMENT, expected=expected, value=value))
        return False

    async def _last_run(self, job: Job) -> Event | None:
        """Return the event of the run that has the job's token; None if there is no such run."""
        for run in await self._store.runs(job.id):
            if run.token == job.token:
                return DetachedJobFound(run.status, run.reason, _detail(job))
        return None

    async def _orphans(self) -> int:
        count = 0
        while removed := await self._store.remove_orphans(limit=MAX_BATCH):
            count += len(removed)
            for event in removed:
                log.warning("orphan run removed run=%s token=%d", event.run_id, event.token)
        return count


async def settle(
    store: Jobs, found: Sequence[tuple[Job, Event]], new_id: Callable[[], JobId]
) -> list[State]:
    """Apply the events; return the new states of the jobs that had not changed meanwhile."""
    states: list[State] = []
    for start in range(0, len(found), MAX_BATCH):
        some = found[start : start + MAX_BATCH]
        changes = [decide(job, event, new_id=new_id) for job, event in some]
        applied = await store.apply(changes)
        for (job, _), change, ok in zip(some, changes, applied, strict=True):
            if ok:
                written = yield_to_cancel(job, change)  # as the store has applied it
                _log_recovered(job, written)
                states.append(written.move.to)
    return states


def _detail(job: Job) -> str:
    """Return in words what recovery found, for the event of a detached job."""
    if job.holder is None:
        return "found in no state table; no run names a worker"
    return f"found in no state table; its last worker was {job.holder} (boot {job.boot_id})"


class _Page(Protocol):
    async def __call__(self, *, after: int, limit: int) -> list[Job]: ...


async def all_pages(page: _Page) -> AsyncIterator[Job]:
    """Yield the jobs of all pages, by `seq`."""
    after = 0
    while jobs := await page(after=after, limit=MAX_BATCH):
        for job in jobs:
            yield job
        after = jobs[-1].seq


def _log_recovered(job: Job, change: Change) -> None:
    to = str(change.move.to)
    fields = {"job": job.id, "token": job.token, "holder": job.holder, "boot": job.boot_id}
    why = {"now": to, "reason": change.reason_code or to}
    emit(log, logging.WARNING, "recovered", {**fields, **why})

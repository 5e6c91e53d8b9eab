"""Retry and cancel of all jobs that match a filter, page by page."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from outlast.core.decide import decide
from outlast.core.event import CancelRequested
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.limits import MAX_REASON, truncate
from outlast.core.lineage import RETRYABLE, retry_copy
from outlast.core.state import FINAL, State
from outlast.errors import InvalidArgument, TransitionRefused
from outlast.jobs.client import Client
from outlast.jobs.handle import Handle
from outlast.jobs.job_filter import JobFilter
from outlast.jobs.job_search import check_limit, narrowed, search, to_filter
from outlast.store.contract import Store
from outlast.store.contract.jobs import Added

MAX_JOBS: Final = 100_000
"""Jobs that one call changes at most."""

BATCH: Final = 500
"""Jobs of one write."""

UNFINISHED: Final = frozenset(State) - FINAL


@dataclass(slots=True)
class BulkResult:
    """What a call on many jobs did.

    Attributes:
        handles: The jobs that were cancelled, or asked to stop; for a retry the new jobs.
        refused: Why a job was left as it is, by its id.
        is_complete: False if the call stopped at its `limit`; call it again for the others.
    """

    handles: list[Handle[Any]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    is_complete: bool = True

    @property
    def changed(self) -> int:
        """Number of jobs that were changed."""
        return len(self.handles)


async def retry_jobs(client: Client, query: Mapping[str, Any], *, limit: int) -> BulkResult:
    """Retry the jobs that match, by default the dead letters.

    Jobs that were retried already are left out, so that the call can be repeated.
    """
    check_limit(limit, MAX_JOBS)
    store = await client.store()
    wanted = await to_filter(store, query)
    _require_states(wanted, RETRYABLE, "retried")
    chosen = narrowed(wanted, RETRYABLE, frozenset({State.DEAD_LETTER}))
    done = BulkResult()
    async for jobs in _batches(client, store, chosen, done, limit):
        await _retry(client, store, jobs, done)
    return done


async def cancel_jobs(
    client: Client, query: Mapping[str, Any], *, reason: str | None, limit: int
) -> BulkResult:
    """Cancel the unfinished jobs that match; ask those that run to stop."""
    check_limit(limit, MAX_JOBS)
    store = await client.store()
    wanted = await to_filter(store, query)
    _require_states(wanted, UNFINISHED, "cancelled")
    why = None if reason is None else truncate(reason, MAX_REASON)
    done = BulkResult()
    async for jobs in _batches(
        client, store, narrowed(wanted, UNFINISHED, UNFINISHED), done, limit
    ):
        await _cancel(client, store, [job for job in jobs if not job.cancel_requested], why, done)
    return done


async def _batches(
    client: Client, store: Store, wanted: JobFilter, done: BulkResult, limit: int
) -> AsyncIterator[list[Job]]:
    """Yield the jobs in batches until `limit` are changed."""
    batch: list[Job] = []
    async with aclosing(search(store, wanted, client.envelopes)) as found:
        async for job in found:
            if done.changed + len(batch) == limit:
                yield batch
                batch = []
            if done.changed == limit:
                done.is_complete = False
                return
            batch.append(job)
            if len(batch) == BATCH:
                yield batch
                batch = []
    if batch:
        yield batch


async def _retry(client: Client, store: Store, jobs: list[Job], done: BulkResult) -> None:
    copies = []
    for job in jobs:
        try:
            copies.append((job, retry_copy(job, client.ids.job())))
        except TransitionRefused as error:
            done.refused[job.id] = str(error)
    added = await store.add([copy for _, copy in copies]) if copies else []
    for (job, _), each in zip(copies, added, strict=True):
        if each.created:
            done.handles.append(Handle(each.id, client, created=True))
        elif (why := await _why_not_retried(store, job, each)) is not None:
            done.refused[job.id] = why


async def _why_not_retried(store: Store, job: Job, added: Added) -> str | None:
    """Return why the store refused a retry; None if the job was retried before."""
    if any(each.retry_of == job.id for each in await store.chain(job.id)):
        return None
    return added.refused or (
        f"job {added.id} holds its active key {job.active_key!r}; retry when that job has ended"
    )


async def _cancel(
    client: Client, store: Store, jobs: list[Job], reason: str | None, done: BulkResult
) -> None:
    changes = [decide(job, CancelRequested(reason), new_id=client.ids.job) for job in jobs]
    written = await store.apply(changes) if changes else []
    for job, is_written in zip(jobs, written, strict=True):
        try:
            if not is_written:  # it has moved on since it was read
                await client.cancel(job.id, reason=reason)
        except (TransitionRefused, LookupError) as error:
            done.refused[job.id] = str(error)
        else:
            done.handles.append(Handle(JobId(job.id), client, created=False))


def _require_states(wanted: JobFilter, allowed: frozenset[State], verb: str) -> None:
    asked = wanted.store.states
    if asked is not None and not asked <= allowed:
        known = ", ".join(sorted(allowed - {State.NEW}))
        raise InvalidArgument(
            f"jobs that are {', '.join(sorted(asked - allowed))} are never {verb}; give a state "
            f"of {known}"
        )

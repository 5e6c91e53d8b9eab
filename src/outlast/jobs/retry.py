"""Manual retry: each retry is a new job, linked to the one before."""

from collections.abc import Collection, Iterable
from typing import Any, Final

from outlast.core.delivery import Delivery
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.limits import check_name
from outlast.core.lineage import RETRYABLE, Lineage, retry_copy
from outlast.core.state import State
from outlast.errors import DuplicateJob, InvalidArgument, TransitionRefused
from outlast.jobs.client import Client
from outlast.jobs.completion import find
from outlast.jobs.handle import Handle
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter

MAX_JOBS: Final = 100_000
"""Jobs that one call retries at most."""

_PAGE: Final = 500


async def lineage(client: Client, job_id: JobId) -> Lineage:
    """Return the whole retry chain of a job; JobNotFound if there is none."""
    store = await client.store()
    chain = await _chain(store, job_id)
    return Lineage.of(chain, {job.id: await store.runs(job.id) for job in chain})


async def retry(client: Client, job_id: JobId) -> Handle[Any]:
    """Retry the last job of a retry chain.

    Raises DuplicateJob if another call was first, or if another job holds its active key.
    """
    store = await client.store()
    tip = (await _chain(store, job_id))[-1]
    [added] = await store.add([retry_copy(tip, client.ids.job())])
    if added.created:
        return Handle(added.id, client, created=True)
    after = [job for job in await store.chain(tip.id) if job.retry_of == tip.id]
    if after:
        raise DuplicateJob(
            f"job {tip.id} was retried meanwhile, as job {after[0].id}; wait for that one",
            existing=after[0].id,
        )
    if added.refused is None:
        raise DuplicateJob(
            f"job {tip.id} cannot be retried: job {added.id} holds its key "
            f"{tip.active_key!r}; wait until that job has ended, then retry",
            existing=added.id,
        )
    raise TransitionRefused(f"job {tip.id} cannot be retried: {added.refused}")


async def retry_many(
    client: Client,
    *,
    states: Iterable[str] | None = None,
    queue: str | None = None,
    type: str | None = None,  # noqa: A002 - it is what a filter calls it
    limit: int = 1000,
) -> list[Handle[Any]]:
    """Retry up to `limit` jobs, the newest first.

    Jobs that were retried already, and jobs whose active key is held, are left out.
    """
    what = _filter(states, queue, type)
    _check_limit(limit)
    store = await client.store()
    handles: list[Handle[Any]] = []
    before: int | None = None
    while len(handles) < limit:
        page = await store.find(what, limit=_PAGE, before=before)
        if not page:
            break
        before = page[-1].seq
        handles += await _retry_all(client, store, page, limit - len(handles))
    return handles


async def _retry_all(
    client: Client, store: Store, page: Collection[Job], room: int
) -> list[Handle[Any]]:
    """Add retries until `room` are created; the store refuses a second successor of a job."""
    handles: list[Handle[Any]] = []
    repeatable = [job for job in page if job.delivery is not Delivery.ONCE]
    while repeatable and room > len(handles):
        some, repeatable = repeatable[: room - len(handles)], repeatable[room - len(handles) :]
        added = await store.add(_retries(some, client))
        handles += [Handle(each.id, client, created=True) for each in added if each.created]
    return handles


def _retries(jobs: Iterable[Job], client: Client) -> list[NewJob]:
    return [retry_copy(job, client.ids.job()) for job in jobs]


async def _chain(store: Store, job_id: JobId) -> list[Job]:
    return await store.chain(job_id) or [await find(store, job_id)]


def _filter(states: Iterable[str] | None, queue: str | None, kind: str | None) -> Filter:
    asked = {State.DEAD_LETTER} if states is None else set(states)
    if isinstance(states, str) or not asked or not asked <= RETRYABLE:
        known = ", ".join(sorted(RETRYABLE))
        raise InvalidArgument(f"states is {states!r:.80}; give some of {known}, as a list")
    return Filter(
        states=frozenset(State(each) for each in asked),
        queue=None if queue is None else check_name(queue, what="queue"),
        type=None if kind is None else check_name(kind, what="type"),
    )


def _check_limit(limit: int) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_JOBS:
        raise InvalidArgument(f"limit is {limit!r:.80}; use a whole number from 1 to {MAX_JOBS:,}")

"""Manual retry: each retry is a new job, linked to the one before."""

from typing import Any

from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.lineage import Lineage, retry_copy
from outlast.errors import DuplicateJob, TransitionRefused
from outlast.jobs.client import Client
from outlast.jobs.completion import find
from outlast.jobs.handle import Handle
from outlast.store.contract import Store


async def lineage(client: Client, job_id: JobId) -> Lineage:
    """Return the whole retry chain of a job; JobNotFound if there is none."""
    store = await client.store()
    chain, reveal = await _chain(store, job_id), client.envelopes.reveal
    runs = {job.id: [reveal(run, job.type) for run in await store.runs(job.id)] for job in chain}
    return Lineage.of([reveal(job) for job in chain], runs)


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


async def _chain(store: Store, job_id: JobId) -> list[Job]:
    return await store.chain(job_id) or [await find(store, job_id)]

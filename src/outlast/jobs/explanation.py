"""Why a job waits or runs: the facts of the store, and what this machine knows of the workers."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from outlast.core.explain import Explanation, WaitFacts, explain
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.refusals import MAX_UNFIT, Refusals
from outlast.core.state import State
from outlast.core.worker import WorkerRecord
from outlast.process_identity import proved_dead
from outlast.store.contract import Store


async def explain_job(
    store: Store, job_id: JobId, *, max_unfit: timedelta = MAX_UNFIT
) -> Explanation | None:
    """Return every gate of a job; None if there is no such job. `max_unfit` is the setting."""
    facts = await store.wait_facts(job_id)
    if facts is None:
        return None
    return explain(replace(await _completed(store, facts), max_unfit=max_unfit))


def judged(workers: Iterable[WorkerRecord]) -> list[WorkerRecord]:
    """Return the workers; one whose process is proved dead is not alive any more.

    The kernel proves it on the machine of the process. Elsewhere the last heartbeat decides.
    """
    found = list(workers)
    dead = proved_dead(worker.boot_id for worker in found if worker.is_alive)
    return [replace(each, is_alive=False) if each.boot_id in dead else each for each in found]


async def _completed(store: Store, facts: WaitFacts) -> WaitFacts:
    """Add what the snapshot of the store does not hold; the run's token ties both together."""
    job = facts.job
    alive = [worker for worker in judged(facts.workers) if worker.is_alive]
    dead = sum(worker.capacity for worker in facts.workers) - sum(each.capacity for each in alive)
    facts = replace(facts, workers=alive, busy=max(0, facts.busy - dead))
    if job.is_final:
        return replace(facts, successor=await _successor(store, job.id))
    if job.state is not State.RUNNING:
        return replace(facts, refusals=(await refusals_of(store, [job])).get(job.id))
    started = (run.started_at for run in await store.runs(job.id) if run.token == job.token)
    is_dead = job.boot_id is not None and job.boot_id in proved_dead([job.boot_id])
    return replace(facts, run_started_at=next(started, None), is_holder_dead=is_dead)


async def refusals_of(store: Store, jobs: Sequence[Job]) -> dict[JobId, Refusals]:
    """Return the refusals of those jobs that are refused; nothing is read if none can be."""
    may_be = [job.id for job in jobs if not job.is_final and (job.token or job.retry_of)]
    found = await store.refusals(may_be) if may_be else []
    return {job_id: each for job_id, each in zip(may_be, found, strict=True) if each is not None}


async def _successor(store: Store, job_id: JobId) -> JobId | None:
    chain = [job.id for job in await store.chain(job_id)]
    later = chain[chain.index(job_id) + 1 :] if job_id in chain else []
    return later[0] if later else None

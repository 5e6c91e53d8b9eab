"""Why a job waits or runs: the facts of the store, and what this machine knows of the workers."""

from collections.abc import Iterable
from dataclasses import replace

from outlast.core.explain import Explanation, WaitFacts, explain
from outlast.core.ids import JobId
from outlast.core.state import State
from outlast.core.worker import WorkerRecord
from outlast.jobs.envelopes import Envelopes
from outlast.process_identity import proved_dead
from outlast.store.contract import Store


async def explain_job(
    store: Store, job_id: JobId, envelopes: Envelopes | None = None
) -> Explanation | None:
    """Return every gate of a job; None if there is no such job.

    `envelopes` decode what the job has reported.
    """
    facts = await store.wait_facts(job_id)
    if facts is not None and envelopes is not None:
        facts = replace(facts, job=envelopes.reveal(facts.job))
    return None if facts is None else explain(await _completed(store, facts))


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
        return facts
    started = (run.started_at for run in await store.runs(job.id) if run.token == job.token)
    is_dead = job.boot_id is not None and job.boot_id in proved_dead([job.boot_id])
    return replace(facts, run_started_at=next(started, None), is_holder_dead=is_dead)


async def _successor(store: Store, job_id: JobId) -> JobId | None:
    chain = [job.id for job in await store.chain(job_id)]
    later = chain[chain.index(job_id) + 1 :] if job_id in chain else []
    return later[0] if later else None

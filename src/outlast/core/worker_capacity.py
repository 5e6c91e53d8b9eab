"""Which workers can claim a job, and how many of their execution slots are in use."""

from collections.abc import Iterable, Mapping, Sequence

from outlast.core.job import Job
from outlast.core.run import LeaseHolder
from outlast.core.worker import WorkerRecord


def able(job: Job, workers: Iterable[WorkerRecord]) -> list[WorkerRecord]:
    """Return the workers that could claim the job: they serve its queue and know its type.

    A stopping worker claims nothing.
    """
    return [
        worker
        for worker in workers
        if job.queue in worker.queues and job.type in worker.types and not worker.is_stopping
    ]


def capacity_beside(
    holder: LeaseHolder,
    concurrency: int,
    *,
    queue: str,
    types: frozenset[str],
    workers: Iterable[WorkerRecord],
) -> int:
    """Return the capacity of all other processes that claim jobs of these types from the queue.

    The process has `concurrency` slots; the holder's worker may have further processes.
    """
    known = {worker.holder: worker for worker in workers}
    own = known.pop(holder, None)
    others = [
        worker.capacity
        for worker in known.values()
        if worker.is_alive
        and not worker.is_stopping
        and queue in worker.queues
        and not types.isdisjoint(worker.types)
    ]
    return sum(others) + (max(0, own.capacity - concurrency) if own is not None else 0)


def in_use(workers: Iterable[WorkerRecord], open_runs: Mapping[LeaseHolder, int]) -> int:
    """Return how many execution slots of these workers are in use.

    A worker's prefetched jobs do not count beyond its capacity.
    """
    return sum(min(open_runs.get(worker.holder, 0), worker.capacity) for worker in workers)


def types_wanted_by(
    workers: Sequence[WorkerRecord], open_runs: Mapping[LeaseHolder, int]
) -> set[frozenset[str] | None]:
    """Return the sets of job types from which the next claims choose; None is any type.

    Only workers with a free execution slot count, or all workers if none has one.
    """
    free = [worker for worker in workers if open_runs.get(worker.holder, 0) < worker.capacity]
    return {frozenset(worker.types) for worker in free or workers} or {None}

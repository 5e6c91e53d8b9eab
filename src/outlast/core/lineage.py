"""Retry chains as data: the predecessors and successors of a job, and copies for a retry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from outlast.core.delivery import Delivery
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.run import RunRecord
from outlast.core.state import RunStatus, State
from outlast.errors import JobNotFound, TransitionRefused

RETRYABLE: Final = frozenset({State.FAILED, State.DEAD_LETTER, State.CANCELLED, State.SKIPPED})
"""End states from which a job can be retried by hand."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt: a job, and its run if it has started. Numbers start at 0.

    A released run is not counted: the next run has the same number.
    """

    number: int
    job: Job
    run: RunRecord | None


@dataclass(frozen=True, slots=True)
class Lineage:
    """A job with all its predecessors and successors, root first.

    `attempts` lists every attempt, whether the job was retried in place (one job, many runs) or
    as a new job each time.
    """

    jobs: tuple[Job, ...]
    attempts: tuple[Attempt, ...]

    @classmethod
    def of(cls, chain: Sequence[Job], runs: Mapping[JobId, Sequence[RunRecord]]) -> "Lineage":
        """Build the lineage from a non-empty chain and the runs of each of its jobs."""
        attempts: list[Attempt] = []
        number = 0
        for job in chain:
            tries: Sequence[RunRecord | None] = runs[job.id] or [None]
            for run in tries:
                attempts.append(Attempt(number, job, run))
                number += run is None or run.status is not RunStatus.RELEASED
        return cls(tuple(chain), tuple(attempts))

    @property
    def root(self) -> Job:
        """The first job of the chain."""
        return self.jobs[0]

    @property
    def tip(self) -> Job:
        """The last job of the chain; its end is the outcome of the whole chain."""
        return self.jobs[-1]

    def attempt(self, job_id: str) -> int:
        """Return the number of links from that job to the root; 0 for the root itself.

        Raises:
            JobNotFound: The job is not part of this chain.
        """
        for number, job in enumerate(self.jobs):
            if job.id == job_id:
                return number
        raise JobNotFound(f"job {job_id!r:.80} is not in the chain of {self.root.id}")


def retry_copy(job: Job, new_id: JobId) -> NewJob:
    """Return a new job that repeats an ended one, with all counts at zero.

    The request is copied, with its active key: the store refuses the retry while another job holds
    it. Dedupe key, slot and start deadline belong to the root alone and are not copied.

    Raises:
        TransitionRefused: The delivery is `once`, or the job has not ended in a retryable state.
    """
    if job.delivery is Delivery.ONCE:
        raise TransitionRefused(
            f'job {job.id} has delivery "once" and is never repeated, because '
            "its work may be done; enqueue a job for another slot"
        )
    if job.state not in RETRYABLE:
        known = ", ".join(sorted(RETRYABLE))
        raise TransitionRefused(
            f"job {job.id} is {job.state}; only jobs that ended {known} can be retried"
        )
    return NewJob(
        id=new_id,
        type=job.type,
        params=job.params,
        name=job.name,
        queue=job.queue,
        delivery=job.delivery,
        priority=job.priority,
        max_attempts=job.max_attempts,
        group_id=job.group_id,
        template_id=job.template_id,
        template_at=job.template_at,
        schedule_id=job.schedule_id,
        active_key=job.active_key,
        metadata=job.metadata,
        retry_of=job.id,
    )

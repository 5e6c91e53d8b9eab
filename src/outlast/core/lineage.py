"""Retry chains as data: where a job comes from, what became of it, and how to have it again."""

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
"""How a job must have ended to be done again by hand."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try: a job, and its run if it has begun. Numbers start from 0.

    A run that was handed back counts as nothing: the next one has its number.
    """

    number: int
    job: Job
    run: RunRecord | None


@dataclass(frozen=True, slots=True)
class Lineage:
    """A job with all that came before and after it, root first.

    One answer for both kinds of retry: whether it was tried again in place (one job, many runs)
    or as a new job each time, `attempts` has every try.
    """

    jobs: tuple[Job, ...]
    attempts: tuple[Attempt, ...]

    @classmethod
    def of(cls, chain: Sequence[Job], runs: Mapping[JobId, Sequence[RunRecord]]) -> "Lineage":
        """From a store's answers: a chain that is not empty, and the runs of each of its jobs."""
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
        """The job that was asked for first."""
        return self.jobs[0]

    @property
    def tip(self) -> Job:
        """The last job; what counts is how this one ends."""
        return self.jobs[-1]

    def attempt(self, job_id: str) -> int:
        """How many links lead from that job to the root: 0 for the root itself."""
        for number, job in enumerate(self.jobs):
            if job.id == job_id:
                return number
        raise JobNotFound(f"job {job_id!r:.80} is not in the chain of {self.root.id}")


def retry_copy(job: Job, new_id: JobId) -> NewJob:
    """A job that does the same once more, counting from zero; TransitionRefused if it may not.

    What was asked is copied; keys, slot and deadline belong to the first of the chain alone.
    """
    if job.delivery is Delivery.ONCE:
        raise TransitionRefused(
            f'job {job.id} is of "{job.type}", which is delivered once: it is never repeated, for '
            "it may have done its work; enqueue it for another slot"
        )
    if job.state not in RETRYABLE:
        known = ", ".join(sorted(RETRYABLE))
        raise TransitionRefused(
            f"job {job.id} is {job.state}; only one that ended {known} can be retried"
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
        retry_of=job.id,
    )

"""Waiting line in memory: the waiting jobs of one queue and priority, for `move_job`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from outlast.core.position import PositionedJob


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A waiting job with its stored position `was` and its new `position`.

    `order` sorts jobs of equal position.
    """

    id: str
    seq: int
    priority: int
    was: int
    position: int
    order: Any


class InMemoryWaitingLine:
    """The line that `move_job` reads and rearranges; `changed` lists the jobs to write."""

    def __init__(self, jobs: Iterable[WaitingJob]) -> None:
        """Start with the stored positions of `jobs`."""
        self._jobs = {job.seq: job for job in jobs}

    @property
    def changed(self) -> list[WaitingJob]:
        """Jobs whose position differs from the stored one."""
        return [job for job in self._jobs.values() if job.position != job.was]

    def seq_of(self, job_id: str) -> int | None:
        """Return the number of a job, or None if it is not in the line."""
        return next((job.seq for job in self._jobs.values() if job.id == job_id), None)

    async def write(self, positions: Mapping[int, int]) -> None:
        """Set the positions of jobs, given by number."""
        for seq, position in positions.items():
            self._jobs[seq] = replace(self._jobs[seq], position=position)

    async def position(self, seq: int) -> int:
        """Return the position of a job; 0 means none."""
        return self._jobs[seq].position

    async def ends(self, *, without: int) -> tuple[int | None, int | None]:
        """Return the lowest and the highest position, the job `without` left out."""
        positions = [job.position for job in self._sorted(without) if job.position]
        return min(positions, default=None), max(positions, default=None)

    async def before(self, seq: int | None, number: int, *, without: int) -> list[PositionedJob]:
        """Return up to `number` jobs before a job, the nearest first; None stands for 0."""
        return self._neighbours(seq, without)[0][::-1][:number]

    async def after(self, seq: int, number: int, *, without: int) -> list[PositionedJob]:
        """Return up to `number` jobs behind a job, the nearest first."""
        return self._neighbours(seq, without)[1][:number]

    async def unplaced(self, last: int, *, without: int) -> list[int]:
        """Return the numbers of the jobs without a position, up to the job `last`."""
        seqs = [job.seq for job in self._sorted(without) if not job.position]
        return seqs[: seqs.index(last) + 1]

    def _neighbours(
        self, seq: int | None, without: int
    ) -> tuple[list[PositionedJob], list[PositionedJob]]:
        """Return the jobs of the same sign before and behind a job; None stands for 0."""
        sign = -1 if seq is None else self._jobs[seq].position
        same_sign = [job for job in self._sorted(without) if job.position * sign > 0]
        jobs = [PositionedJob(job.seq, job.position) for job in same_sign]
        at = [job.seq for job in jobs].index(seq) if seq is not None else len(jobs)
        return jobs[:at], jobs[at + 1 :]

    def _sorted(self, without: int) -> list[WaitingJob]:
        jobs = [job for job in self._jobs.values() if job.seq != without]
        return sorted(jobs, key=lambda job: (job.position, job.order))

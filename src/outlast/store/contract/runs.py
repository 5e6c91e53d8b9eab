"""Contract: runs, progress, artifacts and events."""

from collections.abc import Sequence
from typing import Final, Protocol

from outlast.core.event import EventRecord
from outlast.core.ids import JobId
from outlast.core.refusals import Refusals
from outlast.core.run import Lease, RunRecord

MAX_EVENTS_OF_NO_JOB: Final = 1000
"""Events of no job that one read returns at most, the newest."""


class Runs(Protocol):
    """The runs of jobs and the events that were recorded."""

    async def runs(self, job_id: JobId) -> list[RunRecord]:
        """Return every run of a job, the first one first, the open one last."""
        ...

    async def record_progress(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        """Store the progress of each open run; return True where it was stored.

        The text is JSON of at most 4 KiB, and the last report of a run counts. It is the
        `progress` of the run, also after its end, and of the job while it runs. False if the run
        is closed, the job was claimed again, or the text is invalid. Atomic per report.
        """
        ...

    async def attach(self, lease: Lease, artifacts: Sequence[str]) -> bool:
        """Append artifacts to the run of this lease, open or closed.

        Returns False if there is no such run or the job was claimed again.
        """
        ...

    async def events(self, job_id: JobId | None) -> list[EventRecord]:
        """Return the events of a job, oldest first.

        None asks for the last `MAX_EVENTS_OF_NO_JOB` events of no job: those of queues, and the
        copies that `remove_orphans` made. `stream` has all of them.
        """
        ...

    async def refusals(self, job_ids: Sequence[JobId]) -> list[Refusals | None]:
        """Return the refusals of each job in a row, up to its last ended run.

        None if that run was no refusal, or there is none. A linked job that never ran continues
        the refusals of the job that it follows.
        """
        ...

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        """Return the next `limit` events of all jobs by id, after the id `after`.

        Paging on from the last id misses no event, whatever is written meanwhile: an event becomes
        visible only when every event with a lower id is visible or rolled back. Events of pruned
        jobs are gone.
        """
        ...

"""Contract: runs, progress, artifacts and events."""

from collections.abc import Sequence
from typing import Protocol

from outlast.core.event import EventRecord
from outlast.core.ids import JobId
from outlast.core.run import Lease, RunRecord


class Runs(Protocol):
    """The attempts at a job."""

    async def runs(self, job_id: JobId) -> list[RunRecord]:
        """Every run of a job, the first one first, the open one last."""
        ...

    async def record_progress(self, reports: Sequence[tuple[Lease, str]]) -> list[bool]:
        """Keep what each open run says of its progress; the last one counts. True where kept.

        The text is JSON of at most 4 KiB. Readable as `progress` of the run, and of the job while
        it runs; it stays with the run when that is closed. False if the run is closed, or the job
        was claimed again since, or the text cannot be kept. Atomic per report; nothing is left of
        one that was refused.
        """
        ...

    async def attach(self, lease: Lease, artifacts: Sequence[str]) -> bool:
        """Append artifacts to the run this lease belongs to, open or closed.

        False if there is no such run, or if the job was claimed again since.
        """
        ...

    async def events(self, job_id: JobId | None) -> list[EventRecord]:
        """Everything unusual that was recorded of a job, oldest first.

        None asks for what belongs to no job: what befell queues, and the copies that
        `remove_orphans` left.
        """
        ...

    async def stream(self, *, after: int = 0, limit: int) -> list[EventRecord]:
        """The next `limit` events of everybody, in the order of their ids, from `after` on.

        Whoever pages on from the last id seen misses nothing, however many write meanwhile: an
        event becomes visible only when every event with a lower id is, or never will be. What was
        pruned with its job is gone from here too.
        """
        ...

"""Contract: raw reads for `outlast verify`."""

from typing import Protocol, runtime_checkable

from outlast.core.audit.model import DanglingRecord, JobAudit


class AuditReads(Protocol):
    """Read everything a store holds, page by page; writes nothing and blocks no writer."""

    async def job_count(self) -> int:
        """Return the number of jobs in any state."""
        ...

    async def audit_jobs(self, *, after: int, limit: int) -> list[JobAudit]:
        """Return the next jobs by `seq`, each with everything stored about it.

        A page is one snapshot. `after` is the `seq` of the last job seen. Broken records are
        returned as they are; a value that is not a valid time is None.
        """
        ...

    async def dangling_records(self, *, limit: int) -> list[DanglingRecord]:
        """Return up to `limit` records of each kind that belong to no job or exist too often.

        Each one was in that state at one moment. Keys and slots of deleted jobs are not dangling:
        they stay for ever. The cost grows with the store.
        """
        ...


@runtime_checkable
class Quarantining(Protocol):
    """A store that sets aside jobs whose stored record is damaged."""

    async def why_quarantined(self, job_id: str) -> str | None:
        """Return which record of the job is damaged, and how; None if it is sound or missing."""
        ...

"""The contract for whoever proves a store's own history: everything, raw, page by page."""

from typing import Protocol

from outlast.core.audit.model import DanglingRecord, JobAudit


class AuditReads(Protocol):
    """What `verify` asks. Nothing is written, and whoever works meanwhile is not kept waiting."""

    async def job_count(self) -> int:
        """How many jobs there are, whatever state they are in."""
        ...

    async def audit_jobs(self, *, after: int, limit: int) -> list[JobAudit]:
        """The next jobs by `seq`, each with all that is held of it; `after` pages on.

        One page is one moment: no two facts in it are from before and after a write. Broken
        records are shown as they are; what cannot be read as a moment is None.
        """
        ...

    async def dangling_records(self, *, limit: int) -> list[DanglingRecord]:
        """What belongs to no job, and what is there more often than it may be.

        Up to `limit` of each kind; each one was so at one moment. A key or slot whose job is gone
        is none: they outlive their jobs for ever. The cost grows with the store.
        """
        ...

"""Audit reads: everything stored about each job, and records that belong to nothing."""

from outlast.core.audit.model import DanglingRecord, JobAudit
from outlast.store.rows import audit as audit_rows
from outlast.store.sqlite.operations.base import SqliteOperations


class SqliteAuditOperations(SqliteOperations):
    """What `outlast verify` reads."""

    async def job_count(self) -> int:
        """Return the number of stored jobs."""
        [(number,)] = await self._reader.rows("audit.job_count")
        return int(number)

    async def audit_jobs(self, *, after: int, limit: int) -> list[JobAudit]:
        """Return the next jobs by `seq`, each with everything stored about it."""
        found = await self._reader.rows("audit.jobs", after=after, limit=limit)
        return [audit_rows.job_audit(row) for row in found]

    async def dangling_records(self, *, limit: int) -> list[DanglingRecord]:
        """Return up to `limit` dangling records of each kind."""
        names = audit_rows.DANGLING_RECORD_STATEMENTS
        pages = [await self._reader.rows(name, limit=limit) for name in names]
        return [audit_rows.dangling_record(row) for page in pages for row in page]

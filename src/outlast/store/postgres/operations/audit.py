"""Raw reads for `verify`: one audit record per job, and dangling records."""

from outlast.core.audit.model import DanglingRecord, JobAudit
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.rows import audit as audit_rows


class PostgresAuditOperations(PostgresOperations):
    """Raw reads for `verify`."""

    async def job_count(self) -> int:
        """Return the number of stored jobs."""
        [(number,)] = await self._pool.rows("audit.job_count")
        return int(number)

    async def audit_jobs(self, *, after: int, limit: int) -> list[JobAudit]:
        """Return the next page of jobs with everything stored about them, by `seq`."""
        found = await self._pool.rows("audit.jobs", after=after, limit=limit)
        return [audit_rows.job_audit(tuple(row)) for row in found]

    async def dangling_records(self, *, limit: int) -> list[DanglingRecord]:
        """Return records that belong to nothing, up to `limit` of each kind."""
        pages = [
            await self._pool.rows(name, limit=limit)
            for name in audit_rows.DANGLING_RECORD_STATEMENTS
        ]
        return [audit_rows.dangling_record(tuple(row)) for page in pages for row in page]

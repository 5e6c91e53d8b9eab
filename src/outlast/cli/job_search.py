"""Search for jobs that match a filter, newest first."""

from collections.abc import AsyncIterator
from typing import Final

from outlast.cli.job_filter import JobFilter
from outlast.cli.output import CommandOutput, count
from outlast.core.job import Job
from outlast.store.contract import Store

PAGE: Final = 500
"""How many jobs are read at a time."""

MAX_SCANNED: Final = 200_000
"""How many jobs a search reads at most."""


async def search_jobs(
    store: Store, wanted: JobFilter, out: CommandOutput, *, most: int = MAX_SCANNED
) -> AsyncIterator[Job]:
    """Yield every job that matches, newest first.

    The search stops with a message after `most` jobs, since some conditions have no index.
    """
    before: int | None = None
    scanned = 0
    while page := await store.find(wanted.store, limit=PAGE, before=before):
        for job in page:
            if wanted.since is not None and job.created_at < wanted.since:
                return  # jobs come newest first, so the rest is older
            if wanted.matches(job) and await _has_error(store, job, wanted.error):
                yield job
        scanned += len(page)
        if scanned >= most:
            out.message(
                f"search stopped after {count(scanned, 'job')}; narrow it with state:, type:, "
                "queue: or since:"
            )
            return
        before = page[-1].seq


async def _has_error(store: Store, job: Job, text: str | None) -> bool:
    if text is None:
        return True
    if not job.failures:
        return False
    return any(text in (run.error or "").casefold() for run in await store.runs(job.id))

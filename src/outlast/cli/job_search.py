"""Going through jobs that fit a filter, the newest first."""

from collections.abc import AsyncIterator
from typing import Final

from outlast.cli.job_filter import JobFilter
from outlast.cli.output import CommandOutput
from outlast.core.job import Job
from outlast.store.contract import Store

PAGE: Final = 500
MOST_LOOKED_AT: Final = 200_000
"""How many jobs are looked at one by one for what no index knows; then it says so and stops."""


async def search_jobs(
    store: Store, wanted: JobFilter, out: CommandOutput, *, most: int = MOST_LOOKED_AT
) -> AsyncIterator[Job]:
    """Every job that fits."""
    before: int | None = None
    looked = 0
    while page := await store.find(wanted.store, limit=PAGE, before=before):
        for job in page:
            if wanted.since is not None and job.created_at < wanted.since:
                return  # the newest come first, so all others are older
            if wanted.matches(job) and await _has_error(store, job, wanted.error):
                yield job
        looked += len(page)
        if looked >= most:
            out.message(
                f"stopped after {looked:,} jobs; narrow it with state:, type:, queue: or since:"
            )
            return
        before = page[-1].seq


async def _has_error(store: Store, job: Job, text: str | None) -> bool:
    if text is None:
        return True
    if not job.failures:
        return False
    return any(text in (run.error or "").casefold() for run in await store.runs(job.id))

"""Search for jobs that match a filter, newest first."""

from collections.abc import AsyncIterator
from typing import Final

from outlast.cli.command import CommandContext
from outlast.cli.job_filter import JobFilter
from outlast.cli.output import count
from outlast.core.job import Job

PAGE: Final = 500
"""How many jobs are read at a time."""

MAX_SCANNED: Final = 200_000
"""How many jobs a search reads at most."""


async def search_jobs(
    ctx: CommandContext, wanted: JobFilter, *, most: int = MAX_SCANNED
) -> AsyncIterator[Job]:
    """Yield every job that matches, newest first.

    The search stops with a message after `most` jobs, since some conditions have no index.
    """
    before: int | None = None
    scanned = 0
    while page := await ctx.app.store.find(wanted.store, limit=PAGE, before=before):
        for job in map(ctx.reveal, page):
            if wanted.since is not None and job.created_at < wanted.since:
                return  # jobs come newest first, so the rest is older
            if wanted.matches(job) and await _has_error(ctx, job, wanted.error):
                yield job
        scanned += len(page)
        if scanned >= most:
            ctx.out.message(
                f"search stopped after {count(scanned, 'job')}; narrow it with state:, type:, "
                "queue: or since:"
            )
            return
        before = page[-1].seq


async def _has_error(ctx: CommandContext, job: Job, text: str | None) -> bool:
    if text is None:
        return True
    if not job.failures:
        return False
    return any(text in (run.error or "").casefold() for run in await ctx.app.runs(job.id))

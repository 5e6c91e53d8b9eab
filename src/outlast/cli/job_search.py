"""Search for jobs that match a filter, newest first."""

from collections.abc import AsyncIterator
from typing import Final

from outlast.cli.command import CommandContext
from outlast.cli.output import count
from outlast.core.job import Job
from outlast.jobs.job_filter import JobFilter
from outlast.jobs.job_search import search

MAX_SCANNED: Final = 200_000
"""How many jobs a search reads at most."""


async def search_jobs(
    ctx: CommandContext, wanted: JobFilter, *, most: int = MAX_SCANNED
) -> AsyncIterator[Job]:
    """Yield every job that matches, newest first.

    The search stops with a message after `most` jobs, since some conditions have no index.
    """

    def is_enough(scanned: int) -> bool:
        if scanned >= most:
            ctx.out.message(
                f"search stopped after {count(scanned, 'job')}; narrow it with state:, type:, "
                "queue: or since:"
            )
        return scanned >= most

    envelopes = ctx.app.registry.envelopes
    async for job in search(ctx.app.store, wanted, envelopes, is_enough=is_enough):
        yield ctx.reveal(job)

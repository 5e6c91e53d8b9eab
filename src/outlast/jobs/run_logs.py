"""Reads what the runs of a job logged."""

from collections.abc import AsyncIterator
from typing import Final

from outlast.core.ids import JobId
from outlast.core.run_log import LogLine, read
from outlast.jobs.client import Client
from outlast.store.contract import Store

PAGE: Final = 32
"""Chunks in one read: about the log of a run."""


async def log_lines(
    store: Store, job_id: JobId, *, run: int | None = None, after: tuple[int, int] = (0, 0)
) -> AsyncIterator[LogLine]:
    """Yield the lines of a job's runs in order, after a token and the number of a line.

    With `run`, a token, only the lines of that run.
    """
    token, number = after if run is None else max(after, (run, 0))
    while True:
        page = await store.log_chunks(job_id, after=(token, number), limit=PAGE)
        for own, chunk in page:
            if run is not None and own != run:
                return
            for line in read(own, [chunk], after=number if own == token else 0):
                yield line
            token, number = own, chunk.last
        if len(page) < PAGE:
            return


async def logs_of(
    client: Client, job_id: JobId, *, run: int | None = None
) -> AsyncIterator[LogLine]:
    """Yield what a job's runs have logged so far; JobNotFound if there is no such job."""
    await client.find(job_id)
    async for line in log_lines(await client.store(), job_id, run=run):
        yield line

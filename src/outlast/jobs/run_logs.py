"""Reads what the runs of a job logged."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from outlast.core.envelope import PayloadContext
from outlast.core.ids import JobId
from outlast.core.run_log import LogLine, read
from outlast.jobs.client import Client
from outlast.jobs.envelopes import Envelopes, PlainText
from outlast.store.contract import Store

PAGE: Final = 32
"""Chunks in one read: about the log of a run."""


async def log_lines(
    store: Store,
    job_id: JobId,
    *,
    run: int | None = None,
    after: tuple[int, int] = (0, 0),
    envelopes: Envelopes | None = None,
) -> AsyncIterator[LogLine]:
    """Yield the lines of a job's runs in order, after a token and the number of a line.

    With `run`, a token, only the lines of that run. `envelopes` decode the lines.
    """
    envelopes, context = envelopes or Envelopes(), PayloadContext("log", job_id)
    token, number = after if run is None else max(after, (run, 0))
    while True:
        page = await store.log_chunks(job_id, after=(token, number), limit=PAGE)
        for own, chunk in page:
            if run is not None and own != run:
                return
            text = envelopes.reveal_text(chunk.text, context)
            plain = chunk._replace(text=text)
            for line in read(own, [plain], after=number if own == token else 0):
                is_decoded = isinstance(text, PlainText)
                yield replace(line, text=PlainText(line.text)) if is_decoded else line
            token, number = own, chunk.last
        if len(page) < PAGE:
            return


async def logs_of(
    client: Client, job_id: JobId, *, run: int | None = None
) -> AsyncIterator[LogLine]:
    """Yield what a job's runs have logged so far; JobNotFound if there is no such job."""
    await client.find(job_id)
    store = await client.store()
    async for line in log_lines(store, job_id, run=run, envelopes=client.envelopes):
        yield line

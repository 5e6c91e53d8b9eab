"""The app of the tour; the environment variable `OUTLAST_DEMO_URL` is the URL of its store."""

import asyncio
import os
from typing import Final

from outlast import Backoff, Outlast, Run

URL_VARIABLE: Final = "OUTLAST_DEMO_URL"
SHORT_BACKOFF: Final = Backoff(max_attempts=5, base="100ms", jitter=False)

app = Outlast(
    os.environ.get(URL_VARIABLE, "sqlite:///outlast-demo.db"),
    lease="2s",
    renew="500ms",
    tick="250ms",
)


@app.job
async def add(left: int, right: int) -> int:
    """Return the sum after a short wait: a small job."""
    await asyncio.sleep(0.005)
    return left + right


@app.job(retry=SHORT_BACKOFF)
async def flaky(run: Run, order: int) -> str:
    """Fail twice, then succeed."""
    if run.attempt <= 2:  # noqa: PLR2004 - the first two attempts
        raise ConnectionError(f"order {order}: connection reset by peer")
    return f"order {order} sent"


@app.job(queue="reports")
async def report(month: str) -> str:
    """Return a report; the tour pauses its queue first."""
    return f"report of {month}"


@app.job(queue="studio", delivery="linked")
async def story(title: str, until_direct_run: bool = False) -> str:
    """Return the title; the queue runs one job at a time, in an order that can be changed.

    Args:
        title: The result.
        until_direct_run: Keep the queue busy until a direct run has reserved it.
    """
    while until_direct_run and not await app.store.reservations(limit=1):  # noqa: ASYNC110 - a poll
        await asyncio.sleep(0.05)
    return title


@app.job(queue="long")
async def long(run: Run) -> str:
    """Sleep in the first attempt, until its worker is killed; return at once in the second."""
    if run.attempt == 1:
        await asyncio.sleep(3600)
    return f"finished on attempt {run.attempt}"

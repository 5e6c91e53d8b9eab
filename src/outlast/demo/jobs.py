"""The app that the tour's workers run; `OUTLAST_DEMO_URL` says where its store is."""

import asyncio
import os
from typing import Final

from outlast import Backoff, Outlast, Run

URL: Final = "OUTLAST_DEMO_URL"
SHORT: Final = Backoff(max_attempts=5, base="100ms", jitter=False)

app = Outlast(
    os.environ.get(URL, "sqlite:///outlast-demo.db"), lease="2s", renew="500ms", tick="250ms"
)


@app.job
async def add(left: int, right: int) -> int:
    """Small work."""
    return left + right


@app.job(retry=SHORT)
async def flaky(run: Run, order: int) -> str:
    """Breaks twice, then works."""
    if run.attempt <= 2:  # noqa: PLR2004 - twice
        raise ConnectionError(f"order {order}: the other side hung up")
    return f"order {order} sent"


@app.job(queue="reports")
async def report(month: str) -> str:
    """Waits in a queue that somebody paused."""
    return f"report of {month}"


@app.job(queue="studio", delivery="linked")
async def story(title: str) -> str:
    """One at a time, in an order that can be changed."""
    return title


@app.job(queue="long")
async def long(run: Run) -> str:
    """The first attempt takes longer than its worker lives."""
    if run.attempt == 1:
        await asyncio.sleep(3600)
    return f"finished on attempt {run.attempt}"

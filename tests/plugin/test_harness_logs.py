"""What handlers logged is part of what a drain returns."""

import logging

import pytest

from outlast import Backoff, Outlast, Run
from outlast.testing.harness import Harness

app = Outlast("sqlite:////nowhere/that/exists/jobs.db")
log = logging.getLogger("their.app")


@app.job(retry=Backoff(2, base="1m"))
async def ship(run: Run, order: int) -> None:
    log.warning("order %d, attempt %d", order, run.attempt)
    if run.attempt == 1:
        raise ConnectionError


@pytest.fixture
def outlast_app() -> Outlast:
    return app


async def test_drained_runs_have_their_lines(outlast: Harness) -> None:
    job = await ship.enqueue(7)
    first = await outlast.drain()
    outlast.advance("2m")
    second = await outlast.drain()

    assert [[line.text for line in run.logs] for run in first] == [["order 7, attempt 1"]]
    assert [[line.text for line in run.logs] for run in second] == [["order 7, attempt 2"]]
    assert [line.token async for line in job.logs()] == [1, 2]

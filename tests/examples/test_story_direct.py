"""Direct execution in the studio, with S1's settings and in S1's words."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outlast import Handle, Outlast, QueueBusy, State
from outlast.testing.conformance.factories import take_many
from outlast.testing.harness import Harness
from story_studio import queries, words
from story_studio.studio import QUEUE, Studio

TIMEOUT_S = 120.0


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    return Studio(tmp_path)


@pytest.fixture
def outlast_app(studio: Studio) -> Outlast:
    return studio.app


@asynccontextmanager
async def asking(
    studio: Studio, title: str, **params: Any
) -> AsyncIterator[asyncio.Task[Handle[Any]]]:
    """Request a direct run; the block starts when its reservation is stored."""
    call = asyncio.create_task(studio.story.options(request="the boss").run_now(title, **params))
    async with asyncio.timeout(TIMEOUT_S):
        while not await queries.reserved(studio):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)
    try:
        yield call
    finally:
        call.cancel()
        await asyncio.wait([call])


async def order(studio: Studio) -> list[str]:
    return [row["job_id"] for row in await queries.order(studio)]


async def test_a_direct_story_runs_first_and_leaves_the_queue_as_it_was(
    studio: Studio, outlast: Harness
) -> None:
    await studio.prepare()
    urgent = await studio.research.options(priority=9).enqueue("tides")
    waiting = [(await studio.research.enqueue("tides")).id for _ in range(3)]
    before = await order(studio)

    async with asking(studio, "Right Now") as call:
        [held] = await queries.reserved(studio)
        during = await order(studio)
        [first] = await outlast.drain(limit=1)
        [released] = await queries.direct_reservations(studio)
        direct = await call
    [second] = await outlast.drain(limit=1)

    assert before == [urgent.id, *waiting]
    assert during == before, "the direct job is no part of the queue"
    assert (first.job.id, first.job.state) == (direct.id, State.SUCCEEDED)
    assert second.job.id == urgent.id, "the head is the head from before"
    assert await order(studio) == waiting
    assert held["status"] == words.DirectStatus.ACTIVE
    assert held["reserved_by"].endswith(" for the boss")
    assert held["expires_at"] - held["reserved_at"] == timedelta(minutes=5)
    assert released == {**held, "status": words.DirectStatus.RELEASED}


async def test_while_the_direct_story_is_written_nothing_else_is_dispatched(
    studio: Studio, outlast: Harness
) -> None:
    await studio.prepare()
    await studio.research.enqueue("tides")

    async with asking(studio, "Right Now"):
        claims = await _claim(studio, "worker-1")
        [running] = await queries.interrupted(studio)
        others = await _claim(studio, "worker-2")
        [held] = await queries.reserved(studio)

    assert [claim.job_id for claim in claims] == [running["job_id"]]
    assert running["params"] == {"title": "Right Now"}
    assert (others, held["status"]) == ([], "ACTIVE")


async def test_a_second_one_is_told_that_the_resource_is_busy(
    studio: Studio, outlast: Harness
) -> None:
    await studio.prepare()

    async with asking(studio, "Right Now"):
        with pytest.raises(QueueBusy, match=r"resource busy: .* the boss"):
            await studio.story.options(on_busy="reject").run_now("Me First")

        assert await queries.jobs(studio) == [], "the direct job has not been dispatched"

    assert [row["params"]["title"] for row in await queries.jobs(studio)] == ["Right Now"]


async def test_a_direct_story_that_fails_is_its_callers_to_retry(
    studio: Studio, outlast: Harness
) -> None:
    await studio.prepare()

    async with asking(studio, "Right Now", topic="dragons") as call:
        drained = await outlast.drain()
        direct = await call

    [row] = await queries.jobs(studio)
    assert [ran.job.id for ran in drained] == [direct.id]
    assert (row["permanently_failed"], row["retry_of"]) == (True, None)
    assert [each["status"] for each in await queries.job_runs(studio)] == ["FAILED"]
    assert [each["status"] for each in await queries.direct_reservations(studio)] == ["RELEASED"]


async def test_who_goes_away_before_a_worker_came_leaves_a_cancelled_job(
    studio: Studio, outlast: Harness
) -> None:
    await studio.prepare()
    head = await studio.research.enqueue("tides")

    async with asking(studio, "Never Mind"):
        pass

    [_, job] = await queries.jobs(studio)
    [reservation] = await queries.direct_reservations(studio)
    assert (job["status"], job["started_at"]) == ("CANCELLED", None)
    assert reservation["status"] == "RELEASED"
    assert [ran.job.id for ran in await outlast.drain(limit=1)] == [head.id]


async def _claim(studio: Studio, name: str) -> Any:
    return await take_many(studio.app.store, queue=QUEUE, types=["story", "research"], holder=name)

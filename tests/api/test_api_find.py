"""`app.find`: stored jobs from Python, by state, queue, type and key."""

from pathlib import Path

import pytest

from outlast import InvalidArgument, Outlast, State


@pytest.fixture
async def app(tmp_path: Path):
    app = Outlast(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.job
    async def small(n: int) -> int:
        return n

    @app.job(queue="mail")
    async def mail(to: str) -> None: ...

    async with app:
        await app.enqueue_many(small.bind(n) for n in range(5))
        await mail.options(key="welcome:ada").enqueue(to="ada")
        yield app


async def test_find_returns_the_newest_jobs_first(app: Outlast) -> None:
    found = await app.find()

    assert [job.type for job in found] == ["mail", *["small"] * 5]
    assert [job.params for job in found[1:]] == [f'{{"n":{n}}}' for n in (4, 3, 2, 1, 0)]


async def test_find_continues_before_the_last_job_of_a_page(app: Outlast) -> None:
    first = await app.find(type="small", limit=2)
    second = await app.find(type="small", limit=10, before=first[-1])

    assert [job.seq for job in first + second] == [job.seq for job in await app.find(type="small")]


async def test_find_filters_by_state_queue_type_and_key(app: Outlast) -> None:
    [waiting] = await app.find(queue="mail", states=["queued"])

    assert waiting.state is State.QUEUED
    assert await app.find(key="welcome:ada") == [waiting]
    assert await app.find(queue="mail", type="small") == []
    assert await app.find(states=["dead_letter", "failed"]) == []


@pytest.mark.parametrize(
    "wrong", [{"states": "queued"}, {"states": ["runing"]}, {"states": []}, {"limit": 0}]
)
async def test_find_refuses_a_wrong_argument_and_says_what_is_right(app: Outlast, wrong) -> None:
    with pytest.raises(InvalidArgument, match=r"give some of|use a whole number"):
        await app.find(**wrong)

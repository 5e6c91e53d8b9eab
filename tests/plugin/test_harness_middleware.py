"""Middleware and lifespan in tests: the harness runs both as a worker does."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from outlast import Outlast, Run
from outlast.testing.harness import Harness

seen: list[str] = []


@asynccontextmanager
async def lifespan(_: Outlast) -> AsyncIterator[str]:
    seen.append("starts")
    yield "the value"
    seen.append("ends")


app = Outlast("sqlite:////nowhere/that/exists/jobs.db", lifespan=lifespan)


@app.around
async def outer(run: Run) -> AsyncIterator[None]:
    seen.append(f"outer {run.type}")
    yield


@app.around
def inner(run: Run) -> Iterator[None]:
    seen.append(f"inner {run.type}")
    yield


@app.job
async def in_loop() -> None: ...


@app.job
def in_thread() -> None: ...


@app.job(executor="process")
def in_process() -> None: ...


@app.job
async def what(run: Run) -> str:
    return str(run.context)


@pytest.fixture
def outlast_app() -> Outlast:
    seen.clear()
    return app


@pytest.mark.parametrize("job_type", [in_loop, in_thread, in_process])
async def test_a_handler_alone_has_its_middleware(outlast: Harness, job_type) -> None:
    await outlast.run(job_type)

    assert seen == ["starts", f"outer {job_type.name}", f"inner {job_type.name}", "ends"]


@pytest.mark.parametrize("job_type", [in_loop, in_thread, in_process])
async def test_a_drained_job_has_its_middleware(outlast: Harness, job_type) -> None:
    await job_type.enqueue()

    await outlast.drain(raising=True)

    assert seen == ["starts", f"outer {job_type.name}", f"inner {job_type.name}", "ends"]


async def test_a_drain_and_a_call_have_the_value_of_the_lifespan(outlast: Harness) -> None:
    await what.enqueue()

    assert await outlast.run(what) == "the value"
    assert [ran.result for ran in await outlast.drain(raising=True)] == ["the value"]
    assert seen.count("starts") == seen.count("ends") == 2


async def test_a_context_of_the_test_replaces_the_lifespan(outlast: Harness) -> None:
    outlast.context = "a fake"
    await what.enqueue()

    assert await outlast.run(what) == "a fake"
    assert [ran.result for ran in await outlast.drain(raising=True)] == ["a fake"]
    assert "starts" not in seen

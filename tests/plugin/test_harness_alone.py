"""A handler alone: as a worker calls it, there and back through JSON, with no store."""

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import BaseModel

from outlast import Command, InvalidParams, Outlast, PermanentError, Run, RunError, Snooze
from outlast.testing.harness import Harness

app = Outlast("sqlite:////nowhere/that/exists/jobs.db")


class Receipt(BaseModel):
    number: int


@app.job
async def send(run: Run, receipt: Receipt, at: datetime | None = None) -> Receipt:
    assert (run.type, run.attempt, run.token, run.cancelled) == ("send", 1, 1, False)
    run.progress(1, 2)
    run.attach("a.txt")
    return Receipt(number=receipt.number + 1)


@app.job(delivery="once")
def nightly(numbers: tuple[int, ...]) -> str:
    return f"{numbers!r} {threading.current_thread().name}"


@app.job
async def anything(value: object) -> object:
    return value


@app.job
async def wrong() -> int:
    return "three"  # type: ignore[return-value]


@app.job
async def later() -> Snooze:
    return Snooze("5m")


@app.job
def stops() -> None:
    raise StopIteration("odd")


@app.job
async def effect(run: Run) -> None:
    async with run.transaction():
        pass


@app.job(executor="command")
def pack(folder: str) -> Command:
    return Command(["rm", "-rf", folder])


@app.job(executor="process")
def elsewhere(number: int) -> int:
    return number


@pytest.fixture
def outlast_app() -> Outlast:
    return app


async def test_arguments_and_result_arrive_as_their_types_say(outlast: Harness) -> None:
    moment = datetime(2026, 1, 6, tzinfo=UTC)

    assert await outlast.run(send, Receipt(number=3), at=moment) == Receipt(number=4)
    assert (await outlast.run(nightly, (1, 2))).startswith("(1, 2) outlast-handler")
    assert await outlast.run(elsewhere, 7) == 7
    assert await outlast.run(anything, (1, 2)) == [1, 2]


async def test_what_cannot_be_stored_fails_as_it_would_for_real(outlast: Harness) -> None:
    with pytest.raises(InvalidParams, match="cannot be written as JSON"):
        await outlast.run(anything, object())
    with pytest.raises(InvalidParams, match='field "receipt"'):
        await outlast.run(send, 3)  # type: ignore[arg-type]
    with pytest.raises(PermanentError, match='result of "wrong" refused'):
        await outlast.run(wrong)


async def test_errors_and_outcomes_come_out_as_they_are(outlast: Harness) -> None:
    with pytest.raises(RuntimeError) as failure:
        await outlast.run(stops)
    assert isinstance(failure.value.__cause__, StopIteration)
    with pytest.raises(RunError, match="has no transaction"):
        await outlast.run(effect)

    assert await outlast.run(later) == Snooze("5m")
    assert await outlast.run(pack, "/") == Command(["rm", "-rf", "/"])


def test_nothing_is_stored(outlast: Harness) -> None:
    outlast.complete(outlast.run(elsewhere, 7))

    assert not Path(outlast.store.path).exists()  # type: ignore[attr-defined]
    assert outlast.jobs() == []


def test_a_plain_test_completes_what_is_async(outlast: Harness) -> None:
    handle = outlast.complete(elsewhere.enqueue(7))

    drained = outlast.complete(outlast.drain())

    assert [ran.result for ran in drained] == [7]
    assert outlast.complete(handle.result("2m")) == 7


async def test_an_async_test_is_told_to_await(outlast: Harness) -> None:
    with pytest.raises(RuntimeError, match="runs in an event loop already; write `await`"):
        outlast.complete(outlast.drain())
    await asyncio.sleep(0)

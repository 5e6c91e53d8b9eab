"""A handler alone: as a worker calls it, there and back through JSON, with no store."""

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import BaseModel

from holdfast import Command, Holdfast, InvalidParams, PermanentError, Run, RunError, Snooze
from holdfast.testing.harness import Harness

app = Holdfast("sqlite:////nowhere/that/exists/jobs.db")


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
def holdfast_app() -> Holdfast:
    return app


async def test_arguments_and_result_arrive_as_their_types_say(holdfast: Harness) -> None:
    moment = datetime(2026, 1, 6, tzinfo=UTC)

    assert await holdfast.run(send, Receipt(number=3), at=moment) == Receipt(number=4)
    assert (await holdfast.run(nightly, (1, 2))).startswith("(1, 2) holdfast-handler")
    assert await holdfast.run(elsewhere, 7) == 7
    assert await holdfast.run(anything, (1, 2)) == [1, 2]


async def test_what_cannot_be_stored_fails_as_it_would_for_real(holdfast: Harness) -> None:
    with pytest.raises(InvalidParams, match="cannot be written as JSON"):
        await holdfast.run(anything, object())
    with pytest.raises(InvalidParams, match='field "receipt"'):
        await holdfast.run(send, 3)  # type: ignore[arg-type]
    with pytest.raises(PermanentError, match='result of "wrong" refused'):
        await holdfast.run(wrong)


async def test_errors_and_outcomes_come_out_as_they_are(holdfast: Harness) -> None:
    with pytest.raises(RuntimeError) as failure:
        await holdfast.run(stops)
    assert isinstance(failure.value.__cause__, StopIteration)
    with pytest.raises(RunError, match="has no transaction"):
        await holdfast.run(effect)

    assert await holdfast.run(later) == Snooze("5m")
    assert await holdfast.run(pack, "/") == Command(["rm", "-rf", "/"])


def test_nothing_is_stored(holdfast: Harness) -> None:
    holdfast.complete(holdfast.run(elsewhere, 7))

    assert not Path(holdfast.store.path).exists()  # type: ignore[attr-defined]
    assert holdfast.jobs() == []


def test_a_plain_test_completes_what_is_async(holdfast: Harness) -> None:
    handle = holdfast.complete(elsewhere.enqueue(7))

    drained = holdfast.complete(holdfast.drain())

    assert [ran.result for ran in drained] == [7]
    assert holdfast.complete(handle.result("5s")) == 7


async def test_an_async_test_is_told_to_await(holdfast: Harness) -> None:
    with pytest.raises(RuntimeError, match="runs in an event loop already; write `await`"):
        holdfast.complete(holdfast.drain())
    await asyncio.sleep(0)

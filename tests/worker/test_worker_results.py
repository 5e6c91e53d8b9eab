"""What a handler returns is what its caller gets."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from worker_helpers import SOON, statuses

from outlast import Run, State


class Line(BaseModel):
    sku: str
    price: Decimal


class Receipt(BaseModel):
    number: int
    at: datetime
    lines: list[Line] = Field(default_factory=list)


@dataclass(frozen=True)
class Point:
    x: int
    y: float
    tags: tuple[str, ...] = ()


class Colour(StrEnum):
    RED = "red"


RECEIPT = Receipt(
    number=7,
    at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    lines=[Line(sku="ä☃", price=Decimal("0.10"))],
)
RESULTS = [
    (int, 2**70),
    (str, 'quotes " and \\ and ☃ and \n'),
    (bool, False),
    (float, 0.1),
    (bytes, b"\x00\xff"),
    (Receipt, RECEIPT),
    (Receipt | None, None),
    (list[Receipt], [RECEIPT]),
    (dict[str, Point], {"a": Point(1, 2.5, ("b",))}),
    (Point, Point(-1, 1e300)),
    (Colour, Colour.RED),
    (date | UUID, UUID(int=5)),
    (Any, {"deep": [1, [2, [None]]]}),
    (None, None),
]


def giving(app, hint, value, *, name="give", thread=False):
    if thread:

        @app.job(name=name)
        def give() -> hint:
            return value

        return give

    @app.job(name=name)
    async def give() -> hint:
        return value

    return give


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_a_result_comes_back_as_its_annotation_says(app, thread):
    types = [
        giving(app, hint, value, name=f"give{n}", thread=thread)
        for n, (hint, value) in enumerate(RESULTS)
    ]

    async with app.worker():
        handles = [await each.enqueue() for each in types]
        results = [await handle.result(SOON) for handle in handles]

    assert results == [value for _, value in RESULTS]
    assert [type(each) for each in results] == [type(value) for _, value in RESULTS]
    assert await statuses(app, handles[0]) == [("succeeded", None)]


async def test_params_arrive_as_their_annotations_say(app):
    seen = []

    @app.job
    async def take(receipt: Receipt, point: Point, *, colour: Colour = Colour.RED) -> None:
        seen.extend([receipt, point, colour])

    async with app.worker():
        await (await take.enqueue(RECEIPT, point=Point(1, 2))).wait(SOON)

    assert seen == [RECEIPT, Point(1, 2), Colour.RED]


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_a_handler_sees_which_run_it_is_in(app, thread):
    seen = []

    def note(run):
        seen.append((run.job_id, run.id, run.type, run.token, run.attempt, run.cancelled))

    if thread:

        @app.job(name="look")
        def look(run: Run) -> None:
            note(run)

    else:

        @app.job(name="look")
        async def look(run: Run) -> None:
            note(run)

    async with app.worker():
        handle = await look.enqueue()
        await handle.wait(SOON)

    [run] = await app.runs(handle.id)
    assert seen == [(handle.id, run.run_id, "look", 1, 1, False)]


async def test_artifacts_are_kept_with_the_run_however_it_ends(app):
    @app.job(unknown_error="permanent")
    async def make(run: Run, path: str, fail: bool) -> None:
        run.attach(path)
        if fail:
            raise ValueError("after attaching")

    async with app.worker():
        good = await make.enqueue("a.csv", fail=False)
        bad = await make.enqueue("b ☃.csv", fail=True)
        ends = [await good.wait(SOON), await bad.wait(SOON)]

    assert [job.state for job in ends] == [State.SUCCEEDED, State.DEAD_LETTER]
    kept = [run.artifacts for each in (good, bad) for run in await app.runs(each.id)]
    assert kept == [("a.csv",), ("b ☃.csv",)]


async def test_waiting_in_another_process_gets_the_same_result(app, rival):
    give = giving(app, Receipt, RECEIPT)
    giving(rival, Receipt, RECEIPT)

    async with app.worker():
        handle = await give.enqueue()
        result = await rival.handle(handle.id).result(SOON)

    assert result == RECEIPT

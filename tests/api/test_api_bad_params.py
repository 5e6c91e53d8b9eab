"""Params that cannot be stored: a clear error, in few steps and little memory, nothing written."""

import re
import sys
import tracemalloc
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from outlast import InvalidParams, PayloadTooLarge
from outlast.core.limits import MAX_DEPTH, MAX_PAYLOAD

CALLS = 100_000
MEGABYTES = 10


class Item(BaseModel):
    price: float
    note: str = ""


@dataclass
class Line:
    amount: float


def deep(levels):
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def circle():
    value: list[Any] = []
    value.append(value)
    return value


def laughs():
    value: list[Any] = ["ha"] * 10
    for _ in range(9):
        value = [value] * 10
    return value


def changed_item():
    item = Item(price=1)
    item.price = "a lot"  # type: ignore[assignment]  # behind Pydantic's back
    return item


def nan_item():
    item = Item(price=1)
    item.price = float("nan")
    return item


WRONG = {
    "wrong type": ({"number": "three"}, 'field "number"'),
    "missing": ({}, 'field "number": Field required'),
    "extra": ({"number": 1, "numbr": 2}, 'field "numbr": Extra inputs are not permitted'),
    "NaN": ({"number": 1, "ratio": float("nan")}, 'field "ratio"'),
    "infinity": ({"number": 1, "ratio": float("-inf")}, 'field "ratio"'),
    "NaN inside anything": ({"number": 1, "data": {"a": [1, float("nan")]}}, 'field "data.a[1]"'),
    "infinity inside anything": ({"number": 1, "data": [float("inf")]}, 'field "data[0]"'),
    "NaN inside a model": ({"number": 1, "item": nan_item()}, 'field "item.price"'),
    "NaN made by a model": ({"number": 1, "item": {"price": "nan"}}, 'field "item.price"'),
    "NaN inside a dataclass": ({"number": 1, "data": Line(float("nan"))}, 'field "data.amount"'),
    "a model changed behind": ({"number": 1, "item": changed_item()}, "cannot be written as JSON"),
    "NUL": ({"number": 1, "text": "a\0b"}, 'field "text" holds a NUL'),
    "NUL inside anything": ({"number": 1, "data": ["a", "\0"]}, 'field "data[1]" holds a NUL'),
    "NUL in a key": ({"number": 1, "data": {"\0": 1}}, "holds a NUL"),
    "surrogate": ({"number": 1, "text": "\ud800"}, 'field "text" holds a lone surrogate'),
    "surrogate in a short text": ({"number": 1, "short": "\ud800"}, "holds a lone surrogate"),
    "surrogate inside": ({"number": 1, "data": {"a": "\udfff"}}, 'field "data.a" holds a lone'),
    "surrogate in a key": ({"number": 1, "data": {"\ud800": 1}}, "lone surrogate"),
    "not JSON at all": ({"number": 1, "data": object()}, "cannot be written as JSON"),
    "an iterator": ({"number": 1, "numbers": iter([1, 2])}, 'field "numbers" holds an iterator'),
    "one without end": ({"number": 1, "numbers": count()}, 'field "numbers" holds an iterator'),
    "one without end inside": ({"number": 1, "data": [[count()]]}, 'field "data"'),
}

LARGE = {
    "text": lambda: {"number": 1, "text": "x" * 64_000_000},
    "text inside anything": lambda: {"number": 1, "data": {"a": ["x" * 64_000_000]}},
    "bytes": lambda: {"number": 1, "data": bytes(64_000_000)},
    "a long list": lambda: {"number": 1, "numbers": [0] * 4_000_000},
    "a long range": lambda: {"number": 1, "numbers": range(10**12)},
    "a large dict": lambda: {"number": 1, "data": dict.fromkeys(range(1_000_000))},
    "a long key": lambda: {"number": 1, "data": {"k" * 10_000_000: 1}},
    "many of the same": lambda: {"number": 1, "data": laughs()},
    "a model": lambda: {"number": 1, "item": Item(price=1, note="x" * 1_000_000)},
    "together": lambda: {"number": 1, "text": "x" * 200_000, "data": "y" * 200_000},
    "escaped": lambda: {"number": 1, "text": "\x01" * 100_000},
    "deep": lambda: {"number": 1, "data": deep(100_000)},
    "in a circle": lambda: {"number": 1, "data": circle()},
    "an absurd number": lambda: {"number": 10**100_000},
    "an absurd number inside": lambda: {"number": 1, "data": [-(10**100_000)]},
    "an absurd decimal": lambda: {"number": Decimal("1E+999999999")},
}


@pytest.fixture
def price(app):
    @app.job
    async def price(
        number: int,
        text: str = "",
        ratio: float = 0.0,
        numbers: list[int] | None = None,
        short: Annotated[str, Field(max_length=8)] = "",
        item: Item | None = None,
        data: Any = None,
    ) -> None: ...

    return price


@pytest.mark.parametrize("case", WRONG)
async def test_params_that_cannot_be_stored_are_refused_by_name(price, hand, case):
    params, words = WRONG[case]

    with pytest.raises(InvalidParams, match=re.escape(words)) as refusal:
        await price.enqueue(**params)

    assert str(refusal.value).startswith('params of "price"')
    assert await hand.stored() == []


@pytest.mark.parametrize("case", LARGE)
async def test_params_over_a_bound_are_refused_in_few_steps_and_little_memory(price, hand, case):
    params = LARGE[case]()

    with pytest.raises(PayloadTooLarge, match=r'params of "price".*; .') as refusal:
        price.bind(**params)

    assert _calls(price.bind, params) < CALLS
    assert _megabytes(price.bind, params) < MEGABYTES
    assert len(str(refusal.value)) < 500
    assert await hand.stored() == []


async def test_too_many_or_repeated_arguments_are_refused(price, hand):
    with pytest.raises(InvalidParams, match="takes 7 arguments without a name, not 8"):
        await price.enqueue(1, "", 0.0, None, "", None, None, 8)
    with pytest.raises(InvalidParams, match='given "number" twice'):
        await price.enqueue(1, number=1)

    assert await hand.stored() == []


async def test_a_refusal_never_repeats_the_value(price):
    for params in ({"number": "s3cret"}, {"number": 1, "data": ["s3cret\0"]}):
        with pytest.raises(InvalidParams) as refusal:
            await price.enqueue(**params)

        assert "s3cret" not in str(refusal.value)


async def test_a_payload_of_exactly_the_limit_is_stored(app, hand):
    @app.job
    def keep(text: str) -> None: ...

    room = MAX_PAYLOAD - len('{"text":""}')

    await keep.enqueue("x" * room)
    with pytest.raises(PayloadTooLarge, match=f"{MAX_PAYLOAD + 1:,} bytes"):
        await keep.enqueue("x" * (room + 1))

    assert len(await hand.stored()) == 1


async def test_a_payload_of_exactly_the_deepest_nesting_is_stored_and_read_back(app):
    @app.job
    def keep(data: Any) -> None: ...

    deepest = deep(MAX_DEPTH - 1)  # the params themselves are the first level
    wide = [deepest] * 50

    assert keep.load(keep.bind(deepest).params) == {"data": deepest}
    with pytest.raises(PayloadTooLarge, match="nested more than 100 deep"):
        keep.bind(wide)
    with pytest.raises(PayloadTooLarge, match="nested more than 100 deep"):
        keep.bind(deep(MAX_DEPTH))


@pytest.mark.parametrize(
    "value", ["NaN", "-Infinity", "null", "\\u0000", 'a "NaN" b', None, [None, {"NaN": "null"}]]
)
async def test_what_only_looks_forbidden_is_stored_and_read_back(app, value):
    @app.job
    def keep(data: Any) -> None: ...

    assert keep.load(keep.bind(value).params) == {"data": value}


async def test_many_wrong_items_are_told_in_few_words(app):
    @app.job
    def keep(numbers: list[int]) -> None: ...

    with pytest.raises(InvalidParams, match=r'field "numbers.0".*and 9,995 more') as refusal:
        keep.bind(["x"] * 10_000)

    assert len(str(refusal.value)) < 1000


def _attempt(bind, params):
    try:
        bind(**params)
    except PayloadTooLarge:
        return
    raise AssertionError("it was not refused")


def _calls(bind, params):
    """How many functions it calls, which is the same on any machine."""
    calls = count()

    def seen(_frame, event, _given):
        if event in {"call", "c_call"}:
            next(calls)

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        _attempt(bind, params)
    finally:
        sys.setprofile(before)
    return next(calls)


def _megabytes(bind, params):
    tracemalloc.start()
    try:
        _attempt(bind, params)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()

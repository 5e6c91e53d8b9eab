"""Params and results survive the trip through JSON, or are refused."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, computed_field

from outlast import Cancel, InvalidParams, PayloadTooLarge, PermanentError, RetryAfter, Skip, Snooze
from outlast.core.failure_sink import _parsed
from outlast.jobs.codec import ParamsCodec, ResultCodec
from outlast.jobs.payload_limits import is_storable
from outlast.jobs.registry import Registry

TEXT = st.text().filter(is_storable)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


class Receipt(BaseModel):
    number: int = Field(alias="no")
    paid: datetime = Field(serialization_alias="paidAt")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        return f"#{self.number}"


@dataclass
class Point:
    x: int
    y: float = 0.5


MOMENT = datetime(2026, 1, 5, 9, tzinfo=UTC)
VALUES = [
    (Receipt, Receipt(no=3, paid=MOMENT)),
    (Point, Point(1)),
    (dict[str, list[Point]], {"a": [Point(1), Point(2, 3)]}),
    (bytes, b"\xff\x00"),
    (Decimal, Decimal("0.10")),
    (UUID, UUID(int=5)),
    (timedelta, timedelta(seconds=1.5)),
    (datetime, MOMENT),
    (set[int], {1, 2}),
    (tuple[int, str], (1, "a")),
    (int, 10**3999),
    (Receipt | Snooze | Skip | Cancel | RetryAfter | None, Receipt(no=3, paid=MOMENT)),
]


@pytest.mark.parametrize(("hint", "value"), VALUES, ids=lambda value: str(value)[:30])
async def test_a_value_comes_back_as_it_went_in(app, hint, value):
    def keep(value, plain=None): ...

    keep.__annotations__ = {"value": hint, "plain": Any, "return": hint}
    if "Snooze" in str(hint):
        del keep.__annotations__["value"]
    job_type = app.job(keep)

    assert job_type.load_result(job_type.dump_result(value)) == value
    if "value" in keep.__annotations__:
        assert job_type.load(job_type.bind(value)._params) == {"value": value}


@given(value=JSON)
def test_any_json_value_comes_back_as_it_went_in(value):
    codec = ParamsCodec("any", {"value": Any})

    assert codec.load(codec.dump({"value": value})) == {"value": value}


@given(
    value=st.text() | st.lists(st.text() | st.floats()) | st.dictionaries(st.text(), st.floats())
)
def test_whatever_is_stored_is_storable_and_readable(value):
    codec = ParamsCodec("any", {"value": Any})

    try:
        text = codec.dump({"value": value})
    except InvalidParams:
        return

    assert is_storable(text)
    assert codec.load(text) == {"value": value}


def test_nothing_is_kept_of_a_handler_that_returns_none():
    assert ResultCodec("send", type(None)).dump("whatever") is None
    assert ResultCodec("send", Any).dump(None) is None
    assert ResultCodec("send", Any).load(None) is None


@pytest.mark.parametrize(
    ("hint", "value", "words"),
    [
        (int, "three", 'result of "send" refused: Input should be a valid integer'),
        (int, None, 'result of "send" refused'),
        (Any, float("nan"), 'result of "send" is NaN or infinite'),
        (Any, {"a": ["\0"]}, 'result of "send": field "a.0." holds a NUL'),
        (Any, object(), 'result of "send" cannot be written as JSON'),
    ],
)
def test_a_result_that_cannot_be_kept_is_a_permanent_failure(hint, value, words):
    with pytest.raises(PermanentError, match=words):
        ResultCodec("send", hint).dump(value)


GARBAGE = ["{not json", "[" * 3_000, "7" * 5_000]


@pytest.mark.parametrize("text", GARBAGE, ids=["no json", "deep", "long number"])
def test_a_stored_result_that_cannot_be_read_is_a_clear_error(text):
    with pytest.raises(InvalidParams, match='result of "send" is stored as a text that is no JSON'):
        Registry().load_result("send", text)
    with pytest.raises(InvalidParams, match='result of "send"'):
        ResultCodec("send", int).load(text)


@pytest.mark.parametrize("text", GARBAGE, ids=["no json", "deep", "long number"])
def test_failure_sinks_take_stored_params_that_cannot_be_read(text):
    assert _parsed(text) == {}


def test_a_result_over_the_limit_is_told_as_such():
    with pytest.raises(PayloadTooLarge, match='result of "send" is too large'):
        ResultCodec("send", Any).dump("x" * 300_000)


@pytest.mark.parametrize(
    "text",
    ['{"number":"x"}', "{}", '{"number":1,"more":2}', "", "[]", "nonsense", "[" * 100_000, '{"num'],
)
async def test_stored_params_that_no_longer_fit_are_refused_at_the_claim(app, text):
    @app.job
    def send(number: int) -> None: ...

    with pytest.raises(InvalidParams, match='params of "send" refused'):
        send.load(text)

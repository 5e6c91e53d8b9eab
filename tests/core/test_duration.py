"""Spans of time as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.duration import LONGEST, format_exact, parse_duration

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

parts = st.tuples(st.integers(0, 7_000), st.sampled_from(sorted(UNITS)))


@given(st.lists(parts, min_size=1, max_size=5))
def test_a_span_is_the_sum_of_its_parts(written: list[tuple[int, str]]):
    text = "".join(f"{number}{unit}" for number, unit in written)

    span = parse_duration(text, what="delay")

    total = sum(number * UNITS[unit] for number, unit in written)
    assert span == timedelta(milliseconds=total)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("15s", timedelta(seconds=15)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("30d", timedelta(days=30)),
        ("0s", timedelta(0)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
    ],
)
def test_a_span_reads_as_people_write_it(text: str, span: timedelta):
    assert parse_duration(text, what="delay") == span


@given(st.integers(0, LONGEST // timedelta(milliseconds=1)))
def test_a_span_is_written_as_it_is_read(milliseconds: int):
    span = timedelta(milliseconds=milliseconds)

    assert parse_duration(format_exact(span), what="delay") == span


@given(st.timedeltas(min_value=timedelta(0), max_value=LONGEST))
def test_a_timedelta_is_a_span_already(span: timedelta):
    assert parse_duration(span, what="delay") == span


@pytest.mark.parametrize(
    "text",
    ["", " ", "5", "m", "-5m", "+5m", "5 m", " 5m", "5m ", "5m\n", "1.5h", "5M", "5us", "1h 30m"],
)
def test_text_that_is_no_span_is_refused_and_shown(text: str):
    with pytest.raises(ValueError, match=r"^delay is ") as refused:
        parse_duration(text, what="delay")

    assert repr(text) in str(refused.value)


@pytest.mark.parametrize("text", ["٣s", "\uff13s", "1234567890s", "1s" * 6, "1m\0"])
def test_only_a_few_plain_digits_make_a_span(text: str):
    with pytest.raises(ValueError, match=r"^delay is "):
        parse_duration(text, what="delay")


@pytest.mark.parametrize("value", [None, 5, 1.5, True, b"5m", ["5m"], float("nan")])
def test_a_bare_number_or_anything_else_is_no_span(value: object):
    with pytest.raises(ValueError, match=r"^delay is ") as refused:
        parse_duration(value, what="delay")

    assert repr(value) in str(refused.value)


@pytest.mark.parametrize(
    "span",
    [
        timedelta(microseconds=-1),
        timedelta(days=-1),
        LONGEST + timedelta(microseconds=1),
        timedelta.max,
        "36501d",
        "999999999d",
    ],
)
def test_a_span_lies_between_zero_and_a_hundred_years(span: str | timedelta):
    with pytest.raises(ValueError, match=r"delay is .*between zero and 36500 days"):
        parse_duration(span, what="delay")


@pytest.mark.parametrize("text", ["999999999d24h", "999999999d" * 5])
def test_a_span_past_what_a_timedelta_holds_is_out_of_bounds_too(text: str):
    with pytest.raises(ValueError, match=r"^delay is "):
        parse_duration(text, what="delay")


def test_a_long_text_is_not_repeated_whole():
    with pytest.raises(ValueError, match=r"^delay is ") as refused:
        parse_duration("x" * 1_000_000, what="delay")

    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("1min", '"1m"'),
        ("1 hour", '"1h"'),
        ("2 hours 30 minutes", '"2h30m"'),
        ("90 sec", '"90s"'),
        ("1 Day", '"1d"'),
        ("5", '"5s" or "5m"'),
        (5, '"5s" or "5m"'),
        ("soon", "a timedelta or text such as"),
        (1.5, "a timedelta or text such as"),
        (True, "a timedelta or text such as"),
    ],
)
def test_a_duration_in_other_words_is_answered_with_how_to_write_it(wrong, right):
    with pytest.raises(ValueError, match=f"delay is .*; write {right}"):
        parse_duration(wrong, what="delay")

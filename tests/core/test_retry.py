"""How often a job is tried, and how long it waits in between."""

from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outlast.core.duration import LONGEST, parse_duration
from outlast.core.retry import (
    DEFAULT_ATTEMPTS,
    MAX_ATTEMPTS,
    Backoff,
    as_backoff,
    attempts_exhausted,
)

MICROSECOND = timedelta(microseconds=1)

spans = st.timedeltas(min_value=timedelta(0), max_value=LONGEST)
draws = st.floats(0, 1, exclude_max=True)


def undrawn() -> float:
    raise AssertionError("without jitter nothing is drawn")


@pytest.mark.parametrize(
    ("base", "cap", "waits"),
    [
        ("1m", "1h", ["1m", "2m", "4m", "8m", "16m", "32m", "1h", "1h"]),
        ("60s", "36500d", ["60s", "120s", "240s", "480s"]),
        ("90m", "1440m", ["90m", "180m", "360m", "720m", "1440m", "1440m"]),
        ("0s", "1h", ["0s", "0s", "0s"]),
        ("1h", "1m", ["1m", "1m"]),
        ("1s", "0s", ["0s", "0s"]),
    ],
)
def test_each_wait_is_twice_the_one_before_up_to_the_cap(base: str, cap: str, waits: list[str]):
    backoff = Backoff(base=base, cap=cap, jitter=False)

    delays = [backoff.delay(retry, undrawn) for retry in range(1, len(waits) + 1)]

    assert delays == [parse_duration(wait, what="wait") for wait in waits]


@given(spans, spans, st.integers(1, 300))
@example(MICROSECOND, LONGEST, 52)
@example(MICROSECOND, LONGEST, 53)
@example(MICROSECOND, LONGEST, 10**6)
@example(LONGEST, LONGEST, 10**6)
def test_without_jitter_the_formula_is_exact(base: timedelta, cap: timedelta, retry: int):
    backoff = Backoff(base=base, cap=cap, jitter=False)

    delay = backoff.delay(retry, undrawn)

    exact = min(cap // MICROSECOND, base // MICROSECOND * 2 ** (retry - 1))
    assert delay == exact * MICROSECOND


@given(spans, spans, st.integers(1, 10**6), draws)
@example(LONGEST, LONGEST, 10**6, 0.9999999999999999)
def test_full_jitter_draws_from_zero_to_the_whole_wait(
    base: timedelta, cap: timedelta, retry: int, draw: float
):
    longest = Backoff(base=base, cap=cap, jitter=False).delay(retry, undrawn)

    delay = Backoff(base=base, cap=cap).delay(retry, lambda: draw)

    assert timedelta(0) <= delay <= longest
    assert abs(delay - longest * draw) <= MICROSECOND


def test_jitter_is_the_default_and_can_give_any_part_of_the_wait():
    backoff = Backoff(base="8s")

    delays = [backoff.delay(1, lambda draw=draw: draw / 4) for draw in range(4)]

    assert delays == [timedelta(seconds=seconds) for seconds in (0, 2, 4, 6)]


def test_the_defaults_are_five_attempts_from_a_second_to_an_hour_with_jitter():
    backoff = Backoff()

    assert backoff == Backoff(5, base="1s", cap="1h", jitter=True)


def test_a_backoff_cannot_be_changed():
    backoff = Backoff()

    with pytest.raises(AttributeError):
        backoff.max_attempts = 7  # type: ignore[misc]

    assert backoff.max_attempts == 5


@pytest.mark.parametrize("value", [0, -1, MAX_ATTEMPTS + 1, 10**18, float("nan"), float("inf")])
def test_a_senseless_number_of_attempts_is_refused_by_name(value: int):
    with pytest.raises(ValueError, match=r"^max_attempts is ") as refused:
        Backoff(value)

    assert str(value) in str(refused.value)


@pytest.mark.parametrize("value", [2.5, True, "5", pytest.param(10**5000, id="long")])
def test_attempts_that_are_no_whole_number_are_refused_by_name(value: object):
    with pytest.raises(ValueError, match=r"^max_attempts is "):
        Backoff(value)


@pytest.mark.parametrize("name", ["base", "cap"])
@pytest.mark.parametrize("value", ["soon", "-1s", "", 60, timedelta(seconds=-1), "40000d"])
def test_a_senseless_span_is_refused_by_name(name: str, value: object):
    with pytest.raises(ValueError, match=f"^{name} is "):
        Backoff(**{name: value})


@pytest.mark.parametrize("value", [1, 2, MAX_ATTEMPTS, None])
def test_every_sensible_number_of_attempts_is_taken(value: int | None):
    assert Backoff(value).max_attempts == value


@pytest.mark.parametrize("max_attempts", range(1, 9))
def test_a_job_that_always_fails_runs_exactly_max_attempts_times(max_attempts: int):
    runs = next(runs for runs in count(1) if attempts_exhausted(runs, max_attempts))

    assert runs == max_attempts


@pytest.mark.parametrize("max_retries", range(9))
def test_one_inequality_equals_the_link_counter_of_a_chain(max_retries: int):
    """T-7: S1 counts the links from 0 and retries while `links < max`."""
    by_links = next(links + 1 for links in count() if links >= max_retries)

    by_failures = next(runs for runs in count(1) if attempts_exhausted(runs, max_retries + 1))

    assert by_failures == by_links == max_retries + 1


@given(st.integers(0, 10**9))
def test_without_a_limit_a_job_is_never_given_up(failures: int):
    assert not attempts_exhausted(failures, None)


def test_listed_waits_are_taken_in_turn_and_the_last_repeats() -> None:
    backoff = as_backoff(["10s", "1m", timedelta(minutes=10)])

    waits = [backoff.delay(retry, undrawn).total_seconds() for retry in (1, 2, 3, 4, 10**6)]

    assert waits == [10, 60, 600, 600, 600]
    assert backoff.max_attempts == 4


def test_a_function_chooses_each_wait() -> None:
    backoff = as_backoff(lambda retry: timedelta(seconds=retry**2))

    assert [backoff.delay(retry, undrawn).total_seconds() for retry in (1, 2, 3)] == [1, 4, 9]
    assert backoff.max_attempts == DEFAULT_ATTEMPTS


def test_attempts_and_jitter_can_be_given_beside_the_waits() -> None:
    backoff = Backoff(2, delays=["10s", "1m"], jitter=True)

    assert backoff.max_attempts == 2
    assert backoff.delay(1, lambda: 0.5) == timedelta(seconds=5)


@pytest.mark.parametrize("waits", [[], "10s", [5], ["soon"], ["-1s"], {"10s": 1}, 3, True])
def test_waits_that_cannot_be_used_are_refused(waits: Any) -> None:
    with pytest.raises(ValueError, match=r"wait"):
        as_backoff(waits)


@pytest.mark.parametrize("answer", [None, 5, "soon", timedelta(seconds=-1)])
def test_a_function_that_returns_no_duration_is_named(answer: Any) -> None:
    with pytest.raises(ValueError, match="the wait that the function returned"):
        as_backoff(lambda _: answer).delay(1, undrawn)

"""What a handler may return instead of a result."""

from datetime import timedelta

import pytest

from outlast.core.outcome import Cancel, HandlerOutcome, RetryAfter, Skip, Snooze

WAITS = (Snooze, RetryAfter)
PLAIN = (Skip, Cancel)


@pytest.mark.parametrize("kind", WAITS)
def test_a_wait_may_be_written_as_text_or_as_a_timedelta(kind: type[Snooze]):
    written, given = kind("1h30m", "busy"), kind(timedelta(minutes=90), reason="busy")

    assert written == given
    assert written.delay == timedelta(hours=1, minutes=30)
    assert written.reason == "busy"


@pytest.mark.parametrize(("kind", "name"), [(Snooze, "snooze"), (RetryAfter, "retry")])
@pytest.mark.parametrize("delay", ["soon", "-1s", 60, None, timedelta(seconds=-1), "36501d"])
def test_a_senseless_wait_is_refused_by_name(kind: type[Snooze], name: str, delay: object):
    with pytest.raises(ValueError, match=f"^{name} is "):
        kind(delay)


@pytest.mark.parametrize("kind", WAITS)
def test_a_wait_may_be_none_at_all(kind: type[Snooze]):
    assert kind("0s").delay == timedelta(0)


@pytest.mark.parametrize("outcome", [Snooze("1s"), RetryAfter("1s"), Skip(), Cancel()])
def test_a_reason_is_never_needed(outcome: Snooze):
    assert outcome.reason is None


@pytest.mark.parametrize("outcome", [Snooze("1s"), RetryAfter("1s"), Skip(), Cancel()])
def test_an_outcome_is_told_from_a_result_by_its_type_and_never_changes(outcome: Snooze):
    with pytest.raises(AttributeError):
        outcome.reason = "other"  # type: ignore[misc]

    assert isinstance(outcome, HandlerOutcome)


def test_outcomes_that_mean_different_things_are_never_equal():
    outcomes = [Snooze("1s"), RetryAfter("1s"), Skip(), Cancel(), Skip("x"), Cancel("x")]

    assert len(set(outcomes)) == len(outcomes)

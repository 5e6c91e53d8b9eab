"""The text that the event of a refusal keeps."""

from datetime import UTC, datetime, timedelta

import pytest

from outlast.core.refusals import MAX_WORKERS, Refusals, read_refusals, refusal_detail

AT = datetime(2026, 1, 5, tzinfo=UTC)
LATER = AT + timedelta(minutes=1)


def test_the_first_refusal_is_as_old_as_its_event():
    assert read_refusals(refusal_detail(None, "w1"), AT) == Refusals(
        count=1, since=AT, workers=("w1",)
    )


def test_later_refusals_keep_the_first_moment_and_name_each_worker_once():
    first = read_refusals(refusal_detail(None, "w1"), AT)
    second = read_refusals(refusal_detail(first, "w2"), LATER)
    third = read_refusals(refusal_detail(second, "w1"), LATER)

    assert third == Refusals(count=3, since=AT, workers=("w2", "w1"))


def test_the_text_stays_short_whatever_the_number_of_workers():
    refusals = None
    for number in range(1000):
        refusals = read_refusals(refusal_detail(refusals, f"worker-{number}"), AT)

    assert refusals is not None
    assert (refusals.count, len(refusals.workers)) == (1000, MAX_WORKERS)


@pytest.mark.parametrize(
    "text", [None, "", "no json", "[]", "7", "{}", '{"refusals": "x", "workers": []}', "[" * 5000]
)
def test_a_text_that_is_no_refusal_is_none(text: str | None):
    assert read_refusals(text, AT) is None

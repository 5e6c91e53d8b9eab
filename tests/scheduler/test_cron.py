"""Slots against tables written out by hand, and properties that every rule keeps."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.core.schedule import MOST_DUE, Fold, Gap
from outlast.errors import InvalidSchedule
from outlast.scheduler.cron import (
    ALIASES,
    due_slots,
    is_slot,
    make_rule,
    next_slot,
    occurrences,
    slots,
)
from outlast.scheduler.preview import SlotChange, diff, preview

BERLIN, YORK = "Europe/Berlin", "America/New_York"
HOWE, APIA = "Australia/Lord_Howe", "Pacific/Apia"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# Zone, expression, gap, fold, from when, and the slots (UTC) that must come next.
TABLE = [
    # Berlin 2026-03-29: 02:00 CET → 03:00 CEST at 01:00Z; 2026-10-25: 03:00 CEST → 02:00 CET.
    (BERLIN, "0 9 * * *", None, None, "2026-03-27T12:00", ["03-28T08:00", "03-29T07:00"]),
    (BERLIN, "0 9 * * *", None, None, "2026-10-23T12:00", ["10-24T07:00", "10-25T08:00"]),
    (BERLIN, "30 2 * * *", "run_after", None, "2026-03-28T00:00",
     ["03-28T01:30", "03-29T01:00", "03-30T00:30"]),
    (BERLIN, "30 2 * * *", "skip", None, "2026-03-28T00:00", ["03-28T01:30", "03-30T00:30"]),
    (BERLIN, "*/20 2 * * *", "run_after", None, "2026-03-29T00:00", ["03-29T01:00", "03-30T00:00"]),
    (BERLIN, "0 2,3 * * *", "run_after", None, "2026-03-29T00:00", ["03-29T01:00", "03-30T00:00"]),
    (BERLIN, "0 * * * *", None, None, "2026-03-28T23:30",
     ["03-29T00:00", "03-29T01:00", "03-29T02:00"]),
    (BERLIN, "30 2 * * *", None, "first", "2026-10-24T12:00", ["10-25T00:30", "10-26T01:30"]),
    (BERLIN, "30 2 * * *", None, "second", "2026-10-24T12:00", ["10-25T01:30", "10-26T01:30"]),
    (BERLIN, "30 2 * * *", None, "both", "2026-10-24T12:00",
     ["10-25T00:30", "10-25T01:30", "10-26T01:30"]),
    (BERLIN, "30 2 * * *", None, "both", "2026-10-25T00:30", ["10-25T01:30", "10-26T01:30"]),
    (BERLIN, "*/30 * * * *", None, None, "2026-10-24T23:45",
     ["10-25T00:00", "10-25T00:30", "10-25T01:00", "10-25T01:30", "10-25T02:00"]),
    (BERLIN, "*/30 * * * *", None, "first", "2026-10-24T23:45",
     ["10-25T00:00", "10-25T00:30", "10-25T02:00"]),
    (BERLIN, "0 */2 * * *", None, None, "2026-10-24T20:30",
     ["10-24T22:00", "10-25T00:00", "10-25T01:00", "10-25T03:00"]),
    (BERLIN, "0 */2 * * *", None, None, "2026-03-28T22:30",
     ["03-28T23:00", "03-29T02:00", "03-29T04:00"]),
    # New York 2026-03-08: 02:00 EST → 03:00 EDT at 07:00Z; 2026-11-01: 02:00 EDT → 01:00 EST.
    (YORK, "15 2 * * *", "run_after", None, "2026-03-07T12:00", ["03-08T07:00", "03-09T06:15"]),
    (YORK, "15 2 * * *", "skip", None, "2026-03-07T12:00", ["03-09T06:15"]),
    (YORK, "15 1 * * *", None, None, "2026-10-31T12:00", ["11-01T05:15", "11-02T06:15"]),
    (YORK, "15 1 * * *", None, "both", "2026-10-31T12:00",
     ["11-01T05:15", "11-01T06:15", "11-02T06:15"]),
    (YORK, "0 0-23/6 * * *", None, None, "2026-03-08T00:00",
     ["03-08T05:00", "03-08T10:00", "03-08T16:00"]),
    # Lord Howe: 2026-10-04 02:00 (+10:30) → 02:30 (+11) at 15:30Z the day before; 2026-04-05
    # 02:00 (+11) → 01:30 (+10:30) at 15:00Z.
    (HOWE, "15 2 * * *", "run_after", None, "2026-10-03T00:00", ["10-03T15:30", "10-04T15:15"]),
    (HOWE, "15 2 * * *", "skip", None, "2026-10-03T00:00", ["10-04T15:15"]),
    (HOWE, "45 1 * * *", None, "both", "2026-04-04T00:00",
     ["04-04T14:45", "04-04T15:15", "04-05T15:15"]),
    (HOWE, "45 1 * * *", None, "second", "2026-04-04T00:00", ["04-04T15:15", "04-05T15:15"]),
    (HOWE, "*/15 * * * *", None, None, "2026-04-04T14:25",
     ["04-04T14:30", "04-04T14:45", "04-04T15:00", "04-04T15:15", "04-04T15:30"]),
    (HOWE, "*/15 * * * *", None, None, "2026-10-03T15:10",
     ["10-03T15:15", "10-03T15:30", "10-03T15:45"]),
    # Apia had no 30 December 2011: from -10 to +14 at 10:00Z on the 30th.
    (APIA, "0 9 * * *", "run_after", None, "2011-12-29T00:00",
     ["12-29T19:00", "12-30T10:00", "12-30T19:00"]),
    (APIA, "0 9 * * *", "skip", None, "2011-12-29T00:00", ["12-29T19:00", "12-30T19:00"]),
    (APIA, "0 * * * *", None, None, "2011-12-30T08:30",
     ["12-30T09:00", "12-30T10:00", "12-30T11:00"]),
    # The calendar.
    ("UTC", "0 0 29 2 *", None, None, "2026-01-01T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
    ("UTC", "0 0 31 * *", None, None, "2026-01-31T00:00", ["03-31T00:00", "05-31T00:00"]),
    ("UTC", "59 23 L * *", None, None, "2028-02-01T00:00", ["02-29T23:59", "03-31T23:59"]),
    ("UTC", "*/5 * * * *", None, None, "2038-01-19T03:13",
     ["2038-01-19T03:15", "2038-01-19T03:20"]),
    ("UTC", "0 0 1 1 *", None, None, "2099-06-01T00:00", ["2100-01-01T00:00", "2101-01-01T00:00"]),
    ("UTC", "@daily", None, None, "2026-12-30T12:00", ["12-31T00:00", "2027-01-01T00:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("zone", "expression", "gap", "fold", "after", "expected"), TABLE)
def test_slots_are_those_of_the_table(zone, expression, gap, fold, after, expected):
    rule = make_rule(expression, timezone=zone, gap=gap, fold=fold)
    year = after[:4]

    found = list(slots(rule, utc(after), limit=len(expected)))

    assert found == [utc(at if len(at) > 12 else f"{year}-{at}") for at in expected]


@pytest.mark.parametrize("day", ["2026-03-28T20:00", "2026-10-24T20:00"])
@pytest.mark.parametrize(
    ("spelled", "plain"),
    [("0 0-23 * * *", "0 * * * *"), ("30 2/24 * * *", "30 2 * * *"), ("0 0/1 * * *", "@hourly")],
)
def test_rules_of_the_same_hours_have_the_same_slots_on_both_clock_changes(spelled, plain, day):
    rules = [make_rule(expression, timezone=BERLIN) for expression in (spelled, plain)]

    one, other = (list(slots(rule, utc(day), limit=30)) for rule in rules)

    assert one == other


@pytest.mark.parametrize(
    ("expression", "gap", "fold"),
    [
        ("0 2 * * *", Gap.RUN_AFTER, Fold.FIRST),
        ("*/10 2 * * *", Gap.RUN_AFTER, Fold.FIRST),
        ("0 * * * *", Gap.SKIP, Fold.BOTH),
        ("0 */3 * * *", Gap.SKIP, Fold.BOTH),
        ("0 1-23/2 * * *", Gap.SKIP, Fold.BOTH),
        ("0 0-23 * * *", Gap.SKIP, Fold.BOTH),
        ("0 0-11,12-23 * * *", Gap.SKIP, Fold.BOTH),
        ("0 0,6,12,18 * * *", Gap.SKIP, Fold.BOTH),
        ("30 2/24 * * *", Gap.RUN_AFTER, Fold.FIRST),
        ("0 */24 * * *", Gap.RUN_AFTER, Fold.FIRST),
        ("0 2,14 * * *", Gap.RUN_AFTER, Fold.FIRST),
        ("0 0-6 * * *", Gap.RUN_AFTER, Fold.FIRST),
        ("0 8-18/2 * * *", Gap.RUN_AFTER, Fold.FIRST),
    ],
)
def test_policies_follow_from_the_hours_unless_given(expression, gap, fold):
    rule = make_rule(expression, timezone=BERLIN)

    assert (rule.gap, rule.fold) == (gap, fold)
    assert make_rule(expression, gap="skip", fold="second").fold is Fold.SECOND


def test_an_interval_is_counted_from_its_start_or_from_1970():
    plain = make_rule(every="15m")
    anchored = make_rule(every="15m", start=utc("2026-01-01T00:05"))

    assert next_slot(plain, utc("2026-01-01T00:07")) == utc("2026-01-01T00:15")
    assert next_slot(plain, utc("2026-01-01T00:15")) == utc("2026-01-01T00:30")
    assert next_slot(anchored, utc("2026-01-01T00:07")) == utc("2026-01-01T00:20")
    assert next_slot(anchored, utc("2025-01-01T00:00")) == utc("2026-01-01T00:05")


def test_no_slot_lies_before_the_start_or_after_the_end():
    start, end = utc("2026-01-02T00:00"), utc("2026-01-03T00:00")
    rule = make_rule("0 0 * * *", start=start, end=end)

    assert list(slots(rule, utc("2025-01-01T00:00"))) == [start, end]
    assert [each.at for each in preview(rule, utc("2025-01-01T00:00"))] == [start, end]
    assert next_slot(rule, end) is None


HOSTILE = [
    "",
    "   ",
    "* * * *",
    "* * * * * *",
    "@reboot",
    "61 * * * *",
    "* 24 * * *",
    "* * 0 * *",
    "* * 31 2 *",
    "0 0 30 2 *",
    "*/0 * * * *",
    "1-70 * * * *",
    "5-1 * * * *",
    "-1 * * * *",
    "1e9 * * * *",
    "٣ * * * *",
    "L/2 * * * *",
    "* * * * MON#9",
    "* * * * 5L/2",
    "* * L-3 * *",
    "0 0 * * * ; rm -rf /",
    "1," * 200 + "1 * * * *",
    "9" * 255 + " * * * *",
    "*" * 256,
    "0 0 \x00 * *",
    "0/1/1/1 * * * *",
]


class Calls:
    """How much work was done, whatever the machine."""

    def __init__(self):
        self.count = 0

    def __call__(self, _frame, event, _what):
        self.count += event in {"call", "c_call"}


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count the calls of functions in the block."""
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls)
    try:
        yield calls
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_expressions_are_refused_with_little_work_and_by_name(text):
    with counted_calls() as calls, pytest.raises(InvalidSchedule, match="cron expression"):
        make_rule(text)

    assert calls.count < 5000


@pytest.mark.parametrize("value", [None, 3, b"* * * * *", ["*"]])
def test_what_is_no_text_is_no_expression(value):
    with pytest.raises(InvalidSchedule):
        make_rule(value)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../../etc/passwd", "Europe", "/UTC", None])
def test_a_zone_that_is_none_is_refused(zone):
    with pytest.raises(InvalidSchedule, match="timezone"):
        make_rule("0 0 * * *", timezone=zone)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cron": "0 0 * * *", "every": "1h"}, "not both"),
        ({}, "either a cron expression"),
        ({"every": "10ms"}, "minimum"),
        ({"every": "soon"}, "every"),
        ({"every": "1h", "gap": "jump"}, "gap"),
        ({"every": "1h", "fold": "none"}, "fold"),
        ({"every": "1h", "start": datetime(2026, 1, 1)}, "start"),  # noqa: DTZ001 - on purpose
        ({"every": "1h", "end": "2026"}, "end"),
    ],
)
def test_what_does_not_go_together_is_refused(given, says):
    with pytest.raises(InvalidSchedule, match=says):
        make_rule(**given)


@pytest.mark.parametrize("name", ALIASES)
def test_named_expressions_are_known(name):
    assert make_rule(name).cron == ALIASES[name]


EXPRESSIONS = st.builds(
    lambda m, h, d, mo, w: f"{m} {h} {d} {mo} {w}",
    st.sampled_from(["0", "30", "*/7", "*", "59", "0,15,45", "10-20/5"]),
    st.sampled_from(["*", "2", "*/3", "0-5", "1,2,3", "23"]),
    st.sampled_from(["*", "*", "1", "29", "L"]),
    st.sampled_from(["*", "*", "2", "3,10"]),
    st.sampled_from(["*", "*", "MON", "SUN#1"]),
)
ZONES = st.sampled_from(
    [BERLIN, YORK, HOWE, APIA, "UTC", "Africa/Casablanca", "Asia/Kathmandu", "Pacific/Kiritimati"]
)
MOMENTS = st.integers(0, 30 * 365 * 24 * 60).map(
    lambda minutes: utc("2010-01-01T00:00") + minutes * timedelta(minutes=1)
)


@settings(max_examples=120, deadline=None)
@given(EXPRESSIONS, ZONES, MOMENTS, st.sampled_from(list(Gap)), st.sampled_from(list(Fold)))
def test_slots_rise_and_each_follows_from_the_one_before(expression, zone, after, gap, fold):
    rule = make_rule(expression, timezone=zone, gap=gap, fold=fold)

    found = list(slots(rule, after, limit=12))

    assert all(one < two for one, two in pairwise(found))
    assert all(after < at for at in found)
    assert [next_slot(rule, at) for at in found[:-1]] == found[1:]
    assert all(is_slot(rule, at) for at in found)
    assert list(slots(rule, after, until=found[-1])) == found


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS, ZONES, MOMENTS)
def test_every_slot_is_a_local_time_of_the_expression(expression, zone, after):
    rule = make_rule(expression, timezone=zone, gap="skip", fold="both")
    near = [each for each, _ in zip(occurrences(rule, after), range(20), strict=False)]

    assert [each.at for each in near] == sorted(each.at for each in near)
    for each in near:
        if each.note is None:
            assert is_slot(rule, each.at)


def test_a_preview_marks_what_the_clock_does():
    skipping = preview(
        make_rule("30 2 * * *", timezone=BERLIN, gap="skip"), utc("2026-03-28T12:00")
    )
    moving = preview(make_rule("30 2 * * *", timezone=BERLIN), utc("2026-03-28T12:00"), limit=2)
    twice = preview(
        make_rule("30 2 * * *", timezone=BERLIN, fold="both"), utc("2026-10-24T12:00"), limit=3
    )

    assert [each.runs for each in skipping[:2]] == [False, True]
    assert "forward" in skipping[0].note
    assert skipping[0].wanted == "2026-03-29 02:30"
    assert moving[0].local.isoformat() == "2026-03-29T03:00:00+02:00"
    assert "right after" in moving[0].note
    assert [each.local.isoformat() for each in twice] == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-26T02:30:00+01:00",
    ]
    assert "first of two" in twice[0].note
    assert "second of two" in twice[1].note
    assert twice[2].note is None


def test_a_diff_says_which_slots_come_and_go():
    old, new = make_rule("0 */6 * * *"), make_rule("0 */4 * * *")

    found = diff(old, new, utc("2026-01-01T00:00"), limit=5)

    assert found == [
        (utc("2026-01-01T04:00"), SlotChange.ADDED),
        (utc("2026-01-01T06:00"), SlotChange.REMOVED),
        (utc("2026-01-01T08:00"), SlotChange.ADDED),
        (utc("2026-01-01T12:00"), SlotChange.KEPT),
        (utc("2026-01-01T16:00"), SlotChange.ADDED),
    ]


def test_slots_due_after_an_outage_are_all_of_them_or_the_latest_of_very_many():
    rule = make_rule("* * * * *")
    now = utc("2026-06-01T00:00")
    one_hour, five_years = now - timedelta(hours=1), now - timedelta(days=1826)

    with counted_calls() as calls:
        few, many = due_slots(rule, one_hour, now), due_slots(rule, five_years, now)

    assert few == [one_hour + n * timedelta(minutes=1) for n in range(61)]
    assert len(many) == MOST_DUE
    assert (many[0], many[-1]) == (five_years, now)
    assert all(two - one == timedelta(minutes=1) for one, two in pairwise(many[1:]))
    assert calls.count < 200 * MOST_DUE, "not one look for each minute of five years"

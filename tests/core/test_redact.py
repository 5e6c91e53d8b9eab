"""What may not be shown is in nothing that is told: not in the payload, not in an error's words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.redact import (
    MAX_VALUES,
    REDACTED,
    redact,
    redacted_values,
    scrub,
    traceback_locations,
)

ORDER = {
    "order_id": 4711,
    "customer": {"name": "Ada Lovelace", "city": "London", "mails": {"ada@example.org": 3}},
    "items": ["tea", {"note": "for the countess"}],
    "paid": True,
    "coupon": None,
}
TRACE = """Traceback (most recent call last):
  File "/srv/shop/orders.py", line 4711, in send
    raise LookupError(order)
LookupError: 4711 of Ada Lovelace"""


def without(text: str, payload: object, *show: str) -> str:
    return scrub(text, set(redacted_values(payload, frozenset(show))))


def test_unless_it_is_shown_every_value_is_redacted_and_every_name_kept() -> None:
    assert redact(ORDER, frozenset()) == dict.fromkeys(ORDER, REDACTED)


def test_a_field_is_shown_by_its_path_and_whole() -> None:
    seen = redact(ORDER, frozenset({"order_id", "customer.city", "items", "name"}))

    assert seen == {
        "order_id": 4711,
        "customer": {"name": REDACTED, "city": "London", "mails": REDACTED},
        "items": ["tea", {"note": "for the countess"}],
        "paid": REDACTED,
        "coupon": REDACTED,
    }


def test_what_is_shown_is_bounded() -> None:
    seen = redact({"text": "x" * 100_000}, frozenset({"text"}))

    assert len(seen["text"]) < 2_100


def test_redacted_values_leave_the_words_and_lines_keep_their_numbers() -> None:
    text = without(TRACE, ORDER)

    assert 'File "/srv/shop/orders.py", line 4711, in send' in text
    assert text.endswith("LookupError: [redacted] of [redacted]")


def test_what_is_shown_stays_in_the_words() -> None:
    assert without("4711 of Ada Lovelace", ORDER, "order_id") == "4711 of [redacted]"


@pytest.mark.parametrize(
    "text",
    [
        "no user has ada@example.org",
        "xAda Lovelacex",
        "note 'for the countess'",
        "'London'",
    ],
)
def test_values_are_found_wherever_they_stand(text: str) -> None:
    reported = without(text, ORDER)

    assert REDACTED in reported
    assert not any(value in reported for value in ("ada@", "Lovelace", "countess", "London"))


def test_a_short_value_is_taken_out_where_it_stands_alone() -> None:
    assert (
        without("at 7, line 17 of to_do", {"n": 7, "s": "to"}) == "at [redacted], line 17 of to_do"
    )


def test_of_values_without_number_nothing_is_told_but_where() -> None:
    many = {f"k{n}": f"value {n}" for n in range(MAX_VALUES + 1)}

    assert without(TRACE, many) == traceback_locations(TRACE)
    assert (
        traceback_locations(TRACE) == '  File "/srv/shop/orders.py", line 4711, in send\n[redacted]'
    )


@given(st.text(min_size=1, max_size=20).filter(lambda text: text.strip() not in REDACTED))
def test_however_a_value_is_quoted_it_is_found(value: str) -> None:
    for quoted in (value, repr(value), ascii(value), json.dumps(value)):
        assert without(f"a: {quoted}!", {"field": value}) != f"a: {quoted}!"

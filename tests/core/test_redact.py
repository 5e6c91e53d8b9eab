"""What may not be shown is in nothing that is told: not in the payload, not in an error's words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core import scrub as scrub_module
from outlast.core.redact import redact, redacted_values
from outlast.core.scrub import MAX_VALUES, PART, REDACTED, scrub

ORDER = {
    "order_id": 4711,
    "customer": {"name": "Ada Lovelace", "city": "London", "mails": {"ada@example.org": 3}},
    "items": ["tea", {"note": "for the countess"}],
    "paid": True,
    "coupon": None,
}
TEXT = "LookupError: 4711 of Ada Lovelace"


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


def test_redacted_values_leave_the_words() -> None:
    assert without(TEXT, ORDER) == "LookupError: [redacted] of [redacted]"


def test_a_text_that_looks_like_a_frame_is_scrubbed() -> None:
    forged = 'cannot read\n  File "a very private note", line 1'

    assert "private" not in without(forged, {"note": "a very private note"})


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


def test_of_values_without_number_nothing_is_told() -> None:
    many = {f"k{n}": f"value {n}" for n in range(MAX_VALUES + 1)}

    assert without(TEXT, many) == REDACTED


@pytest.mark.parametrize("length", [PART, 12, 24])
def test_beginnings_and_ends_of_a_long_value_are_removed(length: int) -> None:
    value = "DE89370400440532013000-very-private-note"

    text = without(f"got '{value[:length]}...{value[-length:]}'", {"note": value})

    assert text == "got '[redacted]...[redacted]'"


@given(st.lists(st.text("ab-", min_size=PART, max_size=14), min_size=1, max_size=6), st.data())
def test_values_that_overlap_hide_none_of_each_other(
    values: list[str], data: st.DataObject
) -> None:
    value = data.draw(st.sampled_from(values))
    before, after = data.draw(st.text("ab-", max_size=9)), data.draw(st.text("ab-", max_size=9))

    assert value not in scrub(f"{before}{value}{after}", values)


def test_the_cost_of_many_values_grows_with_the_text_and_not_with_their_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = 0
    common = scrub_module._common

    def counting(one: str, other: str) -> int:
        nonlocal compared
        compared += 1
        return common(one, other)

    monkeypatch.setattr(scrub_module, "_common", counting)
    values = [f"Überweisung an Käufer {n:04}" for n in range(MAX_VALUES)]
    text = "".join(values)[:30_000]

    assert scrub(text, values) == REDACTED
    assert compared <= 4 * len(text)  # two neighbours in each direction; there are 5,000,000 pairs


@given(st.text(min_size=1, max_size=20).filter(lambda text: text.strip() not in REDACTED))
def test_however_a_value_is_quoted_it_is_found(value: str) -> None:
    for quoted in (value, repr(value), ascii(value), json.dumps(value)):
        assert without(f"a: {quoted}!", {"field": value}) != f"a: {quoted}!"

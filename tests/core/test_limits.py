"""Bounds on everything that may enter a store."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outlast.core.limits import (
    MAX_ERROR,
    MAX_KEY,
    MAX_PRIORITY,
    MIN_PRIORITY,
    check_key,
    check_name,
    check_priority,
    is_storable,
    truncate,
)
from outlast.errors import InvalidArgument

ALLOWED = string.ascii_letters + string.digits + "_.:-"
MARKER = " … [cut]"

any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates and NUL too


@given(st.text(ALLOWED, min_size=1, max_size=128))
@example("a" * 128)
@example("-")
def test_a_name_of_plain_characters_passes_unchanged(name: str):
    assert check_name(name, what="queue") is name


@given(any_text.filter(lambda text: not text or set(text) - set(ALLOWED)))
@example("")
@example("a" * 129)
@example("name\n")
@example("\uff41")
@example("é")
@example("a b")
@example("drop'table")
def test_any_other_name_is_refused_and_says_which(name: str):
    with pytest.raises(InvalidArgument, match=r"^queue is .*use 1 to 128 of the characters"):
        check_name(name, what="queue")


@pytest.mark.parametrize("name", [None, 5, b"name", ["name"], object()])
def test_a_name_is_text(name: object):
    with pytest.raises(InvalidArgument, match=r"^queue is "):
        check_name(name, what="queue")


@given(any_text.filter(is_storable).filter(bool))
@example("🜁" * MAX_KEY)
def test_a_key_is_free_text(key: str):
    assert check_key(key, what="key") is key


@pytest.mark.parametrize("key", ["", "k" * (MAX_KEY + 1), None, 5, b"k"])
def test_a_key_is_neither_empty_nor_endless_nor_anything_but_text(key: object):
    with pytest.raises(InvalidArgument, match=f"^key is .*1 to {MAX_KEY} characters"):
        check_key(key, what="key")


@pytest.mark.parametrize("key", ["a\0b", "\ud800", "ok\udfff"])
def test_a_key_no_store_can_keep_is_refused(key: str):
    with pytest.raises(InvalidArgument, match=r"^key is .*cannot be stored"):
        check_key(key, what="key")


def test_a_key_may_be_empty_where_that_is_allowed():
    assert check_key("", what="bucket", empty=True) == ""


@pytest.mark.parametrize("priority", [MIN_PRIORITY, -1, 0, 1, MAX_PRIORITY])
def test_a_priority_is_a_small_whole_number(priority: int):
    assert check_priority(priority) == priority


@pytest.mark.parametrize("priority", [MIN_PRIORITY - 1, MAX_PRIORITY + 1, 10**30])
def test_a_priority_out_of_bounds_is_refused_and_shown(priority: int):
    with pytest.raises(InvalidArgument, match=f"^priority is {priority}; it must lie in "):
        check_priority(priority)


@pytest.mark.parametrize("priority", [True, 1.0, "1", None, float("nan")])
def test_a_priority_that_is_no_whole_number_is_refused(priority: object):
    with pytest.raises(InvalidArgument, match=r"^priority is .*use a whole number"):
        check_priority(priority)


@pytest.mark.parametrize("check", [check_priority, lambda value: check_name(value, what="queue")])
def test_a_number_too_long_to_print_is_refused_like_any_other(check):
    with pytest.raises(InvalidArgument):
        check(10**5000)


def test_a_refusal_shows_the_start_of_a_long_value_in_plain_characters():
    with pytest.raises(InvalidArgument) as refused:
        check_name("é\n" * 100_000, what="queue")

    assert len(str(refused.value)) < 250
    assert str(refused.value).replace("…", "").isascii()
    assert "\n" not in str(refused.value)


@given(any_text)
@example("a\0")
@example("\ud800")
@example("🜁")
def test_storable_is_what_utf8_can_say_without_nul(text: str):
    assert is_storable(text) == ("\0" not in text and _is_utf8(text))


@given(any_text, st.integers(len(MARKER.encode()), 60))
@example("ä" * 30, 59)
@example("🜁" * 15, 59)
@example("🜁" * 15, 60)
@example("\0" * 20, 59)
@example("\ud800" * 61, 60)
def test_a_cut_text_is_storable_within_its_bytes_and_marked(text: str, limit: int):
    clean = "".join("␀" if char == "\0" else char if _is_utf8(char) else "?" for char in text)

    result = truncate(text, limit)

    assert is_storable(result)
    assert len(result.encode()) <= limit
    if len(clean.encode()) <= limit:
        assert result == clean
    else:
        assert result.endswith(MARKER)
        assert clean.startswith(result.removesuffix(MARKER))


@given(st.text(st.characters(exclude_characters="\0"), min_size=61), st.integers(20, 60))
def test_a_cut_loses_no_more_than_it_must(text: str, limit: int):
    result = truncate(text, limit)

    longest_character = 4
    assert limit - longest_character < len(result.encode()) <= limit


@pytest.mark.parametrize("char", ["a", "ä", "€", "🜁"])
def test_an_error_is_kept_up_to_64_kib_whatever_its_characters(char: str):
    size = len(char.encode())
    fits = char * (MAX_ERROR // size)

    kept, shortened = truncate(fits), truncate(fits + char)

    assert kept == fits
    assert len(shortened.encode()) <= MAX_ERROR
    assert shortened.endswith(MARKER)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

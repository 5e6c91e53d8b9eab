"""Text from jobs can neither control a terminal nor forge a line."""

import pytest

from outlast.core.printable import log_value, printable, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, é 日本語 🙂 and a 👩‍💻", "plain text, é 日本語 🙂 and a 👩‍💻"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J\x7f\x00", "\\x9b2J\\x7f\\x00"),
        ("one\ntwo\r\tthree", "one\\ntwo\\r\\tthree"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("a\u2028b\u2029c\u200bd\ufeff", "a\\u2028b\\u2029c\\u200bd\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_control_characters_become_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown
    shown.encode()


def test_a_block_keeps_its_lines_and_tabs() -> None:
    assert printable_lines("a\r\n\tb\rc\x1b\n") == "a\n\tb\\rc\\x1b\n"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("word", "word"),
        (7, "7"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "no"', '"say \\"no\\""'),
        ("back\\slash", '"back\\\\slash"'),
        ("x\nINFO job_end job=FORGED", '"x\\nINFO job_end job=FORGED"'),
    ],
)
def test_a_log_value_that_is_not_one_word_is_quoted(value: object, shown: str) -> None:
    assert log_value(value) == shown

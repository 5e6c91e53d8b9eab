"""A traceback that came as text is read as Python wrote it."""

import traceback

import pytest
from pydantic import BaseModel

from outlast.core.error_text import error_text
from outlast.core.failure import format_traceback, parse_traceback
from outlast.core.failure_sink import raised_by


class Oddity(Exception):
    """With a name that is not of the builtins."""


def deeper(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [LookupError("no such user"), Oddity("a: b\nand more"), ValueError(), KeyError("a")],
    ids=repr,
)
def test_text_and_exception_tell_the_same(error: Exception) -> None:
    try:
        try:
            deeper(OSError("first"))
        except OSError:
            deeper(error)
    except Exception as caught:  # noqa: BLE001 - any of them
        text = "".join(traceback.format_exception(caught))
        expected, *_ = raised_by(caught)

    [found] = parse_traceback(text)

    assert (found.type, found.message) == (expected.type, expected.message)
    assert found.frames == expected.frames
    assert found.module == expected.module


@pytest.mark.parametrize("text", ["", "the command ended with exit status 3", "Traceback (most"])
def test_what_is_no_traceback_tells_nothing(text: str) -> None:
    assert parse_traceback(text) == ()


class Payment(BaseModel):
    """A payment order."""

    iban: int
    note: str


def test_validation_error_is_told_without_its_inputs() -> None:
    iban = "DE89370400440532013000-AND-SO-ON"
    try:
        try:
            Payment.model_validate({"iban": iban, "note": {"nested": iban}})
        except ValueError as error:
            raise ExceptionGroup("two", [error]) from error
    except ExceptionGroup as group:
        texts = [error_text(group), *(each.message for each in raised_by(group))]

    assert "DE89" not in "".join(texts)
    assert "input_value" not in "".join(texts)
    assert "2 validation errors for Payment\niban\n  Input should be a valid integer" in texts[2]
    assert "note\n  Input should be a valid string [type=string_type]" in texts[0]


def test_traceback_is_written_as_python_writes_it() -> None:
    try:
        deeper(Oddity("a: b"))
    except Oddity as caught:
        expected = [line for line in traceback.format_exception(caught) if "^^" not in line]
        text = format_traceback(raised_by(caught))

    assert [line for line in "".join(expected).splitlines() if "^" not in line] == text.splitlines()

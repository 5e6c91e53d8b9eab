"""A traceback that came as text is read as Python wrote it."""

import traceback

import pytest

from outlast.core.failure import parse_traceback
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

"""Limits on every name, number and text that enters a store."""

import json
import re
from typing import Any, Final

from outlast.errors import InvalidArgument, InvalidParams

MAX_PAYLOAD: Final = 256 * 1024  # bytes of params, result or document
MAX_ERROR: Final = 64 * 1024  # characters and bytes of an error text
MAX_DEPTH: Final = 100  # levels of nested JSON
MAX_PROGRESS: Final = 4 * 1024  # bytes
MAX_KEY: Final = 512  # characters
MAX_REASON: Final = 1024  # characters
MAX_ARTIFACTS: Final = 1000  # paths per run
MAX_ARTIFACTS_SIZE: Final = 128 * 1024  # bytes of all paths of a run
MAX_PATH: Final = 4096  # characters of one path
MIN_EXIT_CODE: Final = -(2**31)
MAX_EXIT_CODE: Final = 2**32 - 1
MIN_PRIORITY: Final = -32_768
MAX_PRIORITY: Final = 32_767

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_CUT_MARK = " … [cut]"
_REPR_LENGTH = 80


def check_name(value: str, *, what: str) -> str:
    """Return a valid name of a type, queue, job, worker or series; InvalidArgument otherwise."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidArgument(
            f"{what} is {repr_short(value)}; use 1 to 128 of the characters A-Z a-z 0-9 _ . : -"
        )
    return value


def check_key(value: str, *, what: str, empty: bool = False) -> str:
    """Return `value` if it can be a dedupe key; InvalidArgument otherwise.

    A key is free text within `MAX_KEY` that every store can hold; empty only if `empty`.
    """
    if not isinstance(value, str) or len(value) > MAX_KEY or not (value or empty):
        raise InvalidArgument(
            f"{what} is {repr_short(value)}; use text of 1 to {MAX_KEY} characters"
        )
    if not is_storable(value):
        raise InvalidArgument(
            f"{what} is {repr_short(value)}; NUL and lone surrogates cannot be stored"
        )
    return value


def check_priority(value: int) -> int:
    """Return `value` if it is a valid priority; InvalidArgument otherwise. Higher goes first."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"priority is {repr_short(value)}; use a whole number")
    if not MIN_PRIORITY <= value <= MAX_PRIORITY:
        raise InvalidArgument(
            f"priority is {repr_short(value)}; it must lie in {MIN_PRIORITY:,}…{MAX_PRIORITY:,}"
        )
    return value


def is_storable(text: str) -> bool:
    """Return whether every store can hold `text`: no NUL, no lone surrogate."""
    return _UNSTORABLE.search(text) is None


def is_text(text: str | None, limit: int) -> bool:
    """Return True if every store can keep `text`, in at most `limit` bytes; None counts as kept."""
    return text is None or (is_storable(text) and len(text.encode()) <= limit)


def is_json(text: str, limit: int) -> bool:
    """Return True if `text` is JSON that every store can keep, in at most `limit` bytes."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return is_text(text, limit)


def read_json(text: str, *, what: str) -> Any:
    """Return the value of a stored JSON text; raise InvalidParams if it cannot be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(";")[0]
        raise InvalidParams(
            f"{what} is stored as a text that is no JSON that can be read: {reason}; "
            "`outlast show ID` prints the text"
        ) from error


def truncate(text: str, limit: int = MAX_ERROR) -> str:
    """Return `text` storable and within `limit`, with a mark where it was cut."""
    clean = text[: limit + 1].replace("\0", "␀").encode("utf-8", "replace")
    if len(clean) <= limit and len(text) <= limit:
        return clean.decode()
    head = clean[: max(0, limit - len(_CUT_MARK.encode()))]
    return head.decode("utf-8", "ignore") + _CUT_MARK


def is_cut(text: str) -> bool:
    """Return whether `truncate` cut the text."""
    return text.endswith(_CUT_MARK)


def repr_short(value: object) -> str:
    """Return the value for an error text: ASCII, at most 80 characters."""
    try:
        text = ascii(value[:_REPR_LENGTH] if isinstance(value, str) else value)
    except ValueError:  # an int of thousands of digits
        return (
            f"a number of {value.bit_length():,} bits" if isinstance(value, int) else "unprintable"
        )
    return text[:_REPR_LENGTH] + "…" if len(text) > _REPR_LENGTH else text

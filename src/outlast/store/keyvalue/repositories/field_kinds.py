"""Kinds of fields in stored records: each says what is wrong with a value, or None."""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from outlast.core.limits import MAX_PRIORITY, MIN_PRIORITY
from outlast.core.metadata import check_metadata
from outlast.errors import InvalidArgument
from outlast.store.keyvalue import key_layout

Kind = Callable[[Any], str | None]
"""Returns what a value should be, or None if it is."""

Shape = Mapping[str, Kind]
"""Fields of a record that are known; others are ignored."""

_MOST: Final = 1 << 63
_BODY: Final = re.compile(r".+#[0-9a-f]{16}#[0-9a-f]{32}", re.DOTALL)


def text(value: Any) -> str | None:
    """Accept text."""
    return None if isinstance(value, str) else "text"


def body(value: Any) -> str | None:
    """Accept the key of a body."""
    is_key = isinstance(value, str) and _BODY.fullmatch(value)
    return None if is_key else "a body's key: <job id>#<token>#<digest>"


def number(value: Any) -> str | None:
    """Accept a whole number of 64 bits."""
    is_number = type(value) is int and -_MOST <= value < _MOST
    return None if is_number else "a whole number of 64 bits"


def priority(value: Any) -> str | None:
    """Accept the priority of a job."""
    is_priority = type(value) is int and MIN_PRIORITY <= value <= MAX_PRIORITY
    return None if is_priority else f"a whole number in {MIN_PRIORITY:,}…{MAX_PRIORITY:,}"


def flag(value: Any) -> str | None:
    """Accept true and false."""
    return None if isinstance(value, bool) else "true or false"


def moment(value: Any) -> str | None:
    """Accept a time with its UTC offset."""
    try:
        key_layout.from_time_key(value)
    except (TypeError, ValueError, OverflowError):
        return "a time such as 2026-01-05T09:00:00.000000Z"
    return None


def metadata(value: Any) -> str | None:
    """Accept the stored text of headers, tags and meta."""
    try:
        check_metadata(value)
    except (InvalidArgument, TypeError):
        return 'metadata such as {"tags":["urgent"]}'
    return None


def texts(value: Any) -> str | None:
    """Accept a list of texts."""
    is_list = isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
    return None if is_list else "a list of texts"


def anything(value: Any) -> str | None:  # noqa: ARG001 - the field need only exist
    """Accept every value."""
    return None


def word(words: type[StrEnum]) -> Kind:
    """Return the kind of a field that holds one of these words."""
    known = frozenset(each.value for each in words)

    def of_these(value: Any) -> str | None:
        is_known = isinstance(value, str) and value in known
        return None if is_known else f"one of {', '.join(sorted(known))}"

    return of_these


def maybe(kind: Kind) -> Kind:
    """Return the kind of a field that may be missing."""

    def or_missing(value: Any) -> str | None:
        return None if value is None else kind(value)

    return or_missing


def why_misshapen(value: Mapping[str, Any], shape: Shape) -> str | None:
    """Return which field is missing or of another kind; None if all fit."""
    for name, kind in shape.items():
        held = value.get(name)
        if (wanted := kind(held)) is not None:
            return f"{name} is missing" if held is None else f"{name} is {held!r:.60}, not {wanted}"
    return None

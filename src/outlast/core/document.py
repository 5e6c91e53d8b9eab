"""Small versioned documents, written by compare-and-swap."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from outlast.core.limits import MAX_PAYLOAD, check_key, check_name, is_storable
from outlast.errors import InvalidArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document as stored; a version number is never used twice in a store."""

    kind: str
    key: str
    value: str
    version: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A compare-and-swap of one document.

    Attributes:
        kind: Kind of the document.
        key: Its key, unique within the kind.
        expected: The version it must have; None if it must not exist.
        value: The new JSON text; None deletes the document.
    """

    kind: str
    key: str
    expected: int | None
    value: str | None


def check_swap(swap: Swap) -> Swap:
    """Return the swap if it can be stored; InvalidArgument otherwise."""
    check_name(swap.kind, what="the kind of a document")
    check_key(swap.key, what="the key of a document")
    if swap.value is not None:
        _check_value(swap.value, f"the {swap.kind} {swap.key!r:.80}")
    elif swap.expected is None:
        what = f"the {swap.kind} {swap.key!r:.80}"
        raise InvalidArgument(f"{what} is to be deleted; set expected to the version it has")
    return swap


def _check_value(value: str, what: str) -> None:
    if not is_storable(value):
        raise InvalidArgument(f"{what} holds NUL or lone surrogates, which cannot be stored")
    size = len(value.encode())
    if size > MAX_PAYLOAD:
        raise InvalidArgument(f"{what} is {size:,} bytes; the limit is {MAX_PAYLOAD // 1024} KiB")
    try:
        json.loads(value, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{what} is not JSON: {error}") from error


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"it holds {constant}")

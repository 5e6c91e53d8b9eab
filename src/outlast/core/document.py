"""Records: small documents that are set by name, compared and swapped."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from outlast.core.limits import MAX_PAYLOAD, check_key, check_name, is_storable
from outlast.errors import InvalidArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document as the store has it; no two that were ever written have one `version`."""

    kind: str
    key: str
    value: str
    version: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A wish to write a record, to create it (nothing expected) or to delete it (no value)."""

    kind: str
    key: str
    expected: int | None
    value: str | None


def check_swap(swap: Swap) -> Swap:
    """`swap`, if a store can keep what it asks; InvalidArgument says what is wrong with it."""
    check_name(swap.kind, what="the kind of a record")
    check_key(swap.key, what="the key of a record")
    if swap.value is not None:
        _check_value(swap.value, f"the {swap.kind} {swap.key!r:.80}")
    elif swap.expected is None:
        raise InvalidArgument(f"the {swap.kind} {swap.key!r:.80} is to go; say which version of it")
    return swap


def _check_value(value: str, what: str) -> None:
    if not is_storable(value):
        raise InvalidArgument(f"{what} holds NUL or lone surrogates, which cannot be stored")
    size = len(value.encode())
    if size > MAX_PAYLOAD:
        raise InvalidArgument(f"{what} is {size:,} bytes; the limit is {MAX_PAYLOAD // 1024} KiB")
    try:
        json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{what} is not JSON: {error}") from error


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"it holds {word}")

"""Limits of payloads: size, depth, and values that JSON cannot express.

The common path visits each value once and scans the finished text with a few substring
searches; only a match is examined further. Messages never contain values: they may be secret.
"""

import json
import math
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import accumulate, islice
from typing import Any, Final, NoReturn
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from outlast.core.envelope import MARK, escape
from outlast.core.limits import MAX_DEPTH, MAX_PAYLOAD, is_storable
from outlast.errors import InvalidParams, PayloadTooLarge

MAX_DIGITS: Final = 4000
"""Digits of a whole number; Python itself parses no more than 4,300."""

_MAX_BITS: Final = int(MAX_DIGITS * math.log2(10))
_SMALL: Final = 2**64
_LISTS: Final = frozenset({list, tuple, set, frozenset, deque})
# Types that take a short, bounded text in JSON.
_FLAT: Final = frozenset({bool, float, type(None), datetime, date, time, timedelta, UUID})
_TEXTS: Final = (str, bytes, bytearray, memoryview)
_NOT_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\[\]{}"]+')
_STEPS: Final = {"[": 1, "{": 1, "]": -1, "}": -1}
_SHOWN: Final = 128


def check_params(params: Mapping[str, Any], *, what: str) -> None:
    """Refuse params that are too large, too deep or endless, before they are walked or copied."""
    size = 0
    for value in params.values():
        kind = type(value)
        if kind is str:
            size += len(value)
        elif kind is int:
            if not -_SMALL < value < _SMALL:
                break
        elif kind not in _FLAT:
            break
    else:
        if size <= MAX_PAYLOAD:
            return
    left = MAX_PAYLOAD
    for name, value in params.items():
        left = _measure(value, left, depth=1, what=f'{what}: field "{name[:_SHOWN]}"')


def check_value(value: object, *, what: str) -> None:
    """Refuse a single value that is too large, too deep or endless."""
    if type(value) not in _FLAT:
        _measure(value, MAX_PAYLOAD, depth=0, what=what)


def to_text(to_json: Callable[[Any], bytes], value: object, *, what: str) -> str:
    """Return `value` as JSON text that every store returns unchanged."""
    try:
        raw = to_json(value)
    except (PydanticSerializationError, ValueError) as error:
        _check_leaves(value, what)  # its error names the path of the bad value
        raise _unwritable(what, error) from error
    if len(raw) > MAX_PAYLOAD:
        raise _too_large(what, f"is {len(raw):,} bytes of JSON")
    text = raw.decode()
    # NaN may also have become null: that is Pydantic's default.
    if "null" in text or "NaN" in text or "Infinity" in text or "\\u0000" in text:
        _check_leaves(value, what)
        _check_constants(text, what)
    if len(text) > 2 * MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(text, what)
    return escape(text) if text.startswith(MARK) else text


def _measure(value: object, left: int, *, depth: int, what: str) -> int:
    """Return what is left of the limit after `value`, measured level by level.

    Every value costs at least one, so the number of steps is at most the limit in bytes. A level
    is collected only if it fits. The measure is never more than the size of the JSON.
    """
    level = [value]
    while level:
        if depth > MAX_DEPTH:
            raise _too_deep(what)
        below: list[object] = []
        for each in level:
            kind = type(each)
            left -= 1
            if kind is str:
                left -= len(each)  # type: ignore[arg-type]  # a str, as just seen
            elif kind in _FLAT:
                continue
            elif kind is int:
                if _is_huge(each):  # type: ignore[arg-type]  # an int
                    raise _too_large_number(what)
            else:
                left -= _gather(each, below, left, what)
            if left < 0:
                raise _too_large(what, "is too large")
        level = below
        depth += 1
    return left


def _gather(value: Any, below: list[object], left: int, what: str) -> int:
    """Append the items of `value` to `below` if they fit into `left`; return its cost."""
    kind = type(value)
    if kind in _LISTS or (kind is not dict and _is_list_like(value)):
        cost = len(value)
        below.extend(islice(value, left) if cost <= left else ())
        return cost
    if isinstance(value, _TEXTS):
        return len(value)
    inside = value if kind is dict else _mapping(value)
    if inside is None:
        _check_single(value, what)
        return 0
    cost = 2 * len(inside)
    if cost <= left:
        below.extend(inside.keys())
        below.extend(inside.values())
    return cost


def _is_list_like(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, (*_TEXTS, Mapping, BaseModel))


def _mapping(value: Any) -> Mapping[Any, Any] | None:
    """Return the items of a mapping, model or dataclass by name; None for other values."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, BaseModel):
        return {**vars(value), **(value.model_extra or {})}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name, None) for each in fields(value)}
    return None


def _check_single(value: object, what: str) -> None:
    if isinstance(value, Iterator):
        raise InvalidParams(f"{what} holds an iterator, which may never end; pass a list")
    if isinstance(value, Decimal) and value.is_finite():
        digits = value.adjusted()  # 1E+999999999 is short as text and huge as an int
    else:
        digits = MAX_DIGITS + 1 if isinstance(value, int) and _is_huge(value) else 0
    if digits > MAX_DIGITS:
        raise _too_large_number(what)


def _is_huge(number: int) -> bool:
    return number.bit_length() > _MAX_BITS


def _check_leaves(root: object, what: str) -> None:
    """Refuse the first number or text that cannot be stored; the error names its path."""
    for path, leaf in _leaves(root):
        if isinstance(leaf, float) and not math.isfinite(leaf):
            raise _not_finite(_place(what, path))
        if isinstance(leaf, str) and not is_storable(leaf):
            name = "a NUL character" if "\0" in leaf else "a lone surrogate"
            raise InvalidParams(
                f"{_place(what, path)} holds {name}, which not every store can keep; "
                "remove it, or pass the bytes in base64"
            )


def _leaves(root: object) -> Iterator[tuple[list[object], object]]:
    """Iterate over every leaf and key below `root` with its path, which is reused in place."""
    path: list[object] = []
    stack: list[Iterator[tuple[Any, Any]]] = [iter([(None, root)])]
    while stack:
        for key, value in stack[-1]:
            path[len(stack) - 1 :] = [key]
            if isinstance(key, str | float):
                yield path, key
            inside = _items(value)
            if inside is None:
                yield path, value
            else:
                stack.append(inside)
                break
        else:
            stack.pop()


def _items(value: Any) -> "Iterator[tuple[Any, Any]] | None":
    inside = _mapping(value)
    if inside is not None:
        return iter(inside.items())
    return iter(enumerate(value)) if _is_list_like(value) else None


def _place(what: str, path: Sequence[object]) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{ascii(step)[1:-1]}" for step in path[1:]]
    where = "".join(steps).lstrip(".")
    return f'{what}: field "{where[:_SHOWN]}"' if where else what


def _check_constants(text: str, what: str) -> None:
    """Refuse non-finite numbers in a value whose shape only its own serialiser knows."""

    def refuse(_: str) -> NoReturn:
        raise _not_finite(what)

    json.loads(text, parse_constant=refuse)


def _check_depth(text: str, what: str) -> None:
    brackets = _NOT_BRACKETS.sub("", text)
    if max(accumulate(map(_STEPS.__getitem__, brackets))) > MAX_DEPTH:
        raise _too_deep(what)


def _unwritable(what: str, error: Exception) -> InvalidParams:
    reason = str(error).partition("\n")[0][:200]
    return InvalidParams(
        f"{what} cannot be written as JSON: {reason}; give plain values or Pydantic models"
    )


def _not_finite(what: str) -> InvalidParams:
    return InvalidParams(
        f"{what} is NaN or infinite, which JSON cannot say; pass None, or a text that says so"
    )


def _too_large(what: str, size: str) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"{what} {size}; the limit for the whole is {MAX_PAYLOAD // 1024} KiB, so store the data "
        "elsewhere and pass a reference to it"
    )


def _too_large_number(what: str) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"{what} holds a number of more than {MAX_DIGITS:,} digits; pass it as text"
    )


def _too_deep(what: str) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"{what} is nested more than {MAX_DEPTH} deep, or contains itself; flatten it"
    )

"""Describe the difference of two answers in a few lines."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any


def differences(found: Any, expected: Any) -> str:
    """One line for each place at which they differ: where, what was found, what was expected."""
    return "\n".join(_lines("answer", found, expected))


def _lines(where: str, found: Any, expected: Any) -> Iterator[str]:
    if found == expected:
        return
    parts = _parts(found, expected)
    if not parts:
        yield f"  {where}: store {found!r}, model {expected!r}"
    for name, one, other in parts:
        yield from _lines(where + name, one, other)


def _parts(found: Any, expected: Any) -> list[tuple[str, Any, Any]]:
    """The parts of two things of one shape; none if their shapes differ or they are whole."""
    if is_dataclass(found) and type(found) is type(expected):
        names = [part.name for part in fields(found)]
        return [(f".{name}", getattr(found, name), getattr(expected, name)) for name in names]
    if _is_list(found) and _is_list(expected) and len(found) == len(expected):
        return [(f"[{n}]", *pair) for n, pair in enumerate(zip(found, expected, strict=True))]
    return []


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)

"""Limits on headers, tags and meta; the errors say what to give instead."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from outlast.core.limits import MAX_DEPTH, is_storable, repr_short
from outlast.errors import InvalidArgument

MAX_TAGS: Final = 16  # per job
MAX_TAG: Final = 64  # characters
MAX_HEADERS: Final = 32  # per job
MAX_HEADER_NAME: Final = 128  # characters
MAX_META: Final = 32  # names per job

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_MAX_BITS: Final = 64


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return valid headers; InvalidArgument says what is wrong."""
    if not isinstance(headers, Mapping):
        raise InvalidArgument(
            f'headers is {repr_short(headers)}; give a mapping: {{"name": "text"}}'
        )
    if len(headers) > MAX_HEADERS:
        raise InvalidArgument(f"there are {len(headers)} headers; at most {MAX_HEADERS} are kept")
    for name, value in headers.items():
        check_text(name, "the name of a header", MAX_HEADER_NAME)
        if not isinstance(value, str) or not is_storable(value):
            raise InvalidArgument(
                f"header {repr_short(name)} is {repr_short(value)}; a header is text without NUL "
                "and lone surrogates, so convert it: str(value)"
            )
    return dict(headers)


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return valid tags, each once, in their order; InvalidArgument says what is wrong."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidArgument(f'tags is {repr_short(tags)}; give a list: ["urgent"]')
    given = list(dict.fromkeys(check_text(tag, "a tag", MAX_TAG) for tag in tags))
    if len(given) > MAX_TAGS:
        raise InvalidArgument(f"there are {len(given)} tags; at most {MAX_TAGS} are kept")
    return tuple(given)


def check_mapping(meta: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the names and values of meta; InvalidArgument if it is no mapping."""
    if not isinstance(meta, Mapping):
        raise InvalidArgument(f'meta is {repr_short(meta)}; give a mapping: {{"tenant": "acme"}}')
    return list(meta.items())


def check_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of valid meta; InvalidArgument names the value that is wrong."""
    named = check_mapping(meta)
    if len(named) > MAX_META:
        raise InvalidArgument(
            f"meta has {len(named)} names; at most {MAX_META} are kept, so store the data "
            "elsewhere and keep a reference to it"
        )
    for name, _ in named:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"a name in meta is {repr_short(name)}; use 1 to 64 of the characters "
                "A-Z a-z 0-9 _ . -"
            )
    return {name: _value(value, f"meta.{name}", 1) for name, value in named}


def _value(value: Any, path: str, depth: int) -> Any:
    """Return a copy of a JSON value."""
    if depth > MAX_DEPTH:
        raise InvalidArgument(f"{path.partition('[')[0]:.80} is nested deeper than {MAX_DEPTH}")
    if isinstance(value, list | tuple):
        return [_value(each, f"{path}[{n}]", depth + 1) for n, each in enumerate(value)]
    if isinstance(value, dict):
        return {_member(name, path): _value(each, f"{path}[…]", depth + 1)
                for name, each in value.items()}  # fmt: skip
    if isinstance(value, str) and is_storable(value):
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and value.bit_length() <= _MAX_BITS:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise InvalidArgument(
        f"{path:.80} is {repr_short(value)}; meta is JSON: text without NUL and lone surrogates, "
        "numbers of at most 64 bits, true, false, null, lists and objects"
    )


def _member(name: Any, path: str) -> str:
    if not isinstance(name, str) or not is_storable(name):
        raise InvalidArgument(f"{path:.80} has the name {repr_short(name)}; names in JSON are text")
    return name


def check_text(value: str, what: str, most: int) -> str:
    """Return text of 1 to `most` characters that every store can keep."""
    if not isinstance(value, str) or not 1 <= len(value) <= most or not is_storable(value):
        raise InvalidArgument(
            f"{what} is {repr_short(value)}; use text of 1 to {most} characters without NUL and "
            "lone surrogates"
        )
    return value

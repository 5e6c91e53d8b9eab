"""Metadata of jobs: headers, tags and meta, their limits, their stored text and their labels.

A job without metadata stores none. Otherwise the text is a JSON object of the parts that are not
empty. A label is what a filter matches: `tag:urgent`, or `meta.tenant:acme`.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from outlast.core.limits import MAX_DEPTH, is_storable, repr_short
from outlast.errors import InvalidArgument

MAX_TAGS: Final = 16  # per job
MAX_TAG: Final = 64  # characters
MAX_HEADERS: Final = 32  # per job
MAX_HEADER_NAME: Final = 128  # characters
MAX_META: Final = 32  # names per job
MAX_METADATA: Final = 8 * 1024  # bytes of the stored text
MAX_LABEL_VALUE: Final = 256  # characters of a meta value that a filter can match

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_MAX_BITS: Final = 64
_SMALLER: Final = "store the data elsewhere and keep a reference to it"
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a job carries beside its params, for filters, middleware and other programs."""

    headers: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> frozenset[str]:
        """Every label of the job."""
        found = (_label_text(value) for value in self.meta.values())
        named = zip(self.meta, found, strict=True)
        searchable = (f"meta.{name}:{text}" for name, text in named if text is not None)
        return frozenset((*map(tag_label, self.tags), *searchable))


NO_METADATA: Final = Metadata()


def to_text(metadata: Metadata) -> str | None:
    """Return the stored text, or None if there is nothing to store.

    Raises:
        InvalidArgument: The text exceeds `MAX_METADATA`.
    """
    parts = {"headers": metadata.headers, "tags": metadata.tags, "meta": metadata.meta}
    given = {name: value for name, value in parts.items() if value}
    if not given:
        return None
    text = _encode(given)
    if (size := len(text.encode())) > MAX_METADATA:
        raise InvalidArgument(
            f"headers, tags and meta are {size:,} bytes of JSON together; at most "
            f"{MAX_METADATA:,} are kept with a job, so {_SMALLER}"
        )
    return text


def from_text(text: str | None) -> Metadata:
    """Return the metadata of a stored text.

    Raises:
        InvalidArgument: The text is no metadata; `outlast verify` reports such a job.
    """
    if text is None:
        return NO_METADATA
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the metadata is no JSON: {repr_short(text)}") from error
    if not isinstance(parts, dict) or not parts.keys() <= {"headers", "tags", "meta"}:
        raise InvalidArgument(f"the metadata is no object of its parts: {repr_short(text)}")
    return checked(**parts)


def checked(
    *,
    headers: Mapping[str, str] | None = None,
    tags: Iterable[str] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Metadata:
    """Return valid metadata; None means none.

    Raises:
        InvalidArgument: A part has the wrong type, too many entries, or one that is too long.
    """
    return Metadata(
        headers={} if headers is None else _headers(headers),
        tags=() if tags is None else _tags(tags),
        meta={} if meta is None else _meta(meta),
    )


def merged(before: Metadata, after: Metadata) -> Metadata:
    """Return both together: tags united, headers and meta by name, where `after` wins.

    Raises:
        InvalidArgument: They are too many together.
    """
    return checked(
        headers={**before.headers, **after.headers},
        tags=(*before.tags, *after.tags),
        meta={**before.meta, **after.meta},
    )


def check_metadata(text: str) -> None:
    """Raise InvalidArgument unless the text is one that `to_text` can return."""
    if to_text(from_text(text)) != text:
        raise InvalidArgument(
            f"the metadata is {repr_short(text)}; write it with `to_text`, which stores have one "
            "form of"
        )


def extended(
    text: str | None,
    *,
    headers: Mapping[str, str] | None = None,
    tags: Iterable[str] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> str | None:
    """Return the stored text of this metadata with more, as `merged` merges them."""
    if headers is None and tags is None and meta is None:
        return text
    return to_text(merged(from_text(text), checked(headers=headers, tags=tags, meta=meta)))


def is_sound(text: str | None) -> bool:
    """Return whether a job may have this text as metadata."""
    try:
        return text is None or check_metadata(text) is None
    except InvalidArgument:
        return False


def tag_label(tag: str) -> str:
    """Return the label of a tag; InvalidArgument if no job can have it."""
    return f"tag:{_check_text(tag, 'a tag', MAX_TAG)}"


def meta_label(name: str, value: Any) -> str:
    """Return the label of a meta value; text and numbers match by their text.

    Raises:
        InvalidArgument: No job can have that name or value, or the value has no label.
    """
    [(valid, given)] = _meta({name: value}).items()
    text = _label_text(given)
    if text is None:
        raise InvalidArgument(
            f"meta.{valid} cannot be matched with {repr_short(value)}; a filter matches text of up "
            f"to {MAX_LABEL_VALUE} characters, a number, true, false or null"
        )
    return f"meta.{valid}:{text}"


def labels_to_match(
    *, tags: Iterable[str] | None, meta: Mapping[str, Any] | None
) -> frozenset[str]:
    """Return the labels that a job must have; InvalidArgument if no job can have them."""
    named = () if meta is None else (meta_label(name, value) for name, value in _named(meta))
    return frozenset((*map(tag_label, () if tags is None else _tags(tags)), *named))


def labels_of(text: str | None) -> frozenset[str]:
    """Return the labels of a stored text."""
    return from_text(text).labels


def _label_text(value: Any) -> str | None:
    """Return the text that a filter compares; None for an object, a list or a long text."""
    if isinstance(value, dict | list):
        return None
    text = value if isinstance(value, str) else _encode(value)
    return text if len(text) <= MAX_LABEL_VALUE else None


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise InvalidArgument(
            f'headers is {repr_short(headers)}; give a mapping: {{"name": "text"}}'
        )
    if len(headers) > MAX_HEADERS:
        raise InvalidArgument(f"there are {len(headers)} headers; at most {MAX_HEADERS} are kept")
    for name, value in headers.items():
        _check_text(name, "the name of a header", MAX_HEADER_NAME)
        if not isinstance(value, str) or not is_storable(value):
            raise InvalidArgument(
                f"header {repr_short(name)} is {repr_short(value)}; a header is text without NUL "
                "and lone surrogates, so convert it: str(value)"
            )
    return dict(headers)


def _tags(tags: Iterable[str]) -> tuple[str, ...]:
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidArgument(f'tags is {repr_short(tags)}; give a list: ["urgent"]')
    given = list(dict.fromkeys(_check_text(tag, "a tag", MAX_TAG) for tag in tags))
    if len(given) > MAX_TAGS:
        raise InvalidArgument(f"there are {len(given)} tags; at most {MAX_TAGS} are kept")
    return tuple(given)


def _named(meta: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if not isinstance(meta, Mapping):
        raise InvalidArgument(f'meta is {repr_short(meta)}; give a mapping: {{"tenant": "acme"}}')
    return list(meta.items())


def _meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    named = _named(meta)
    if len(named) > MAX_META:
        raise InvalidArgument(
            f"meta has {len(named)} names; at most {MAX_META} are kept, so {_SMALLER}"
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


def _check_text(value: str, what: str, most: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= most or not is_storable(value):
        raise InvalidArgument(
            f"{what} is {repr_short(value)}; use text of 1 to {most} characters without NUL and "
            "lone surrogates"
        )
    return value

"""Metadata of jobs: headers, tags and meta, their limits, their stored text and their labels.

A job without metadata stores none. Otherwise the text is a JSON object of the parts that are not
empty. A label is what a filter matches: `tag:urgent`, or `meta.tenant:acme`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from outlast.core.limits import repr_short
from outlast.core.metadata_checks import (
    MAX_TAG,
    check_headers,
    check_mapping,
    check_meta,
    check_tags,
    check_text,
)
from outlast.errors import InvalidArgument

MAX_METADATA: Final = 8 * 1024  # bytes of the stored text
MAX_LABEL_VALUE: Final = 256  # characters of a meta value that a filter can match

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
            f"{MAX_METADATA:,} are kept with a job, so store the "
            "data elsewhere and keep a reference to it"
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
        headers={} if headers is None else check_headers(headers),
        tags=() if tags is None else check_tags(tags),
        meta={} if meta is None else check_meta(meta),
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
            f"the metadata is {repr_short(text)}; stores keep only the form that `to_text` returns"
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
    if text is None:
        return True
    try:
        check_metadata(text)
    except InvalidArgument:
        return False
    return True


def tag_label(tag: str) -> str:
    """Return the label of a tag; InvalidArgument if no job can have it."""
    return f"tag:{check_text(tag, 'a tag', MAX_TAG)}"


def meta_label(name: str, value: Any) -> str:
    """Return the label of a meta value; text and numbers match by their text.

    Raises:
        InvalidArgument: No job can have that name or value, or the value has no label.
    """
    [(valid, given)] = check_meta({name: value}).items()
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
    named = () if meta is None else (meta_label(name, value) for name, value in check_mapping(meta))
    return frozenset((*map(tag_label, () if tags is None else check_tags(tags)), *named))


def labels_of(text: str | None) -> frozenset[str]:
    """Return the labels of a stored text."""
    return from_text(text).labels


def _label_text(value: Any) -> str | None:
    """Return the text that a filter compares; None for an object, a list or a long text."""
    if isinstance(value, dict | list):
        return None
    text = value if isinstance(value, str) else _encode(value)
    return text if len(text) <= MAX_LABEL_VALUE else None

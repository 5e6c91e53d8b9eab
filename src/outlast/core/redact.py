"""Redaction of payloads: only the values that are shown explicitly stay."""

from collections.abc import Collection, Iterator
from typing import Any, Final

from outlast.core.scrub import REDACTED

LONGEST_VALUE: Final = 2_000  # characters of a shown value


def redact(payload: Any, show: Collection[str], path: str = "") -> Any:
    """Return the payload with `[redacted]` for every value whose field is not in `show`.

    A field is named by its path from the top, such as `order.city`, and is shown as a whole.
    """
    if path in show:
        return _bounded(payload)
    if isinstance(payload, dict) and (not path or _is_above(path, show)):
        return {key: redact(value, show, _below(path, key)) for key, value in payload.items()}
    return REDACTED


def redacted_values(payload: Any, show: Collection[str], path: str = "") -> Iterator[str]:
    """Yield each value that `redact` removes, as text, and keys in it that are no identifiers."""
    if path in show:
        return
    match payload:
        case dict():
            for key, value in payload.items():
                if path and not key.isidentifier() and not _is_above(path, show):
                    yield key
                yield from redacted_values(value, show, _below(path, key))
        case list():
            for value in payload:
                yield from redacted_values(value, frozenset(), f"{path}.*")
        case bool() | None:
            return
        case _:
            yield str(payload)


def _bounded(value: Any) -> Any:
    match value:
        case str():
            return value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]} … [cut]"
        case dict():
            return {key: _bounded(each) for key, each in value.items()}
        case list():
            return [_bounded(each) for each in value]
        case _:
            return value


def _is_above(path: str, show: Collection[str]) -> bool:
    return any(name.startswith(f"{path}.") for name in show)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key

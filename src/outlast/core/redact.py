"""Redaction: remove from payloads and error texts every value that is not shown explicitly."""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final

REDACTED: Final = "[redacted]"
MAX_VALUES: Final = 1_000
"""Values to search for in an error text; with more, the text is dropped altogether."""

LONGEST_VALUE: Final = 2_000  # characters of a shown value
_SHORT_VALUE: Final = 4
"""Values with fewer characters are removed only as whole words."""

_FRAME: Final = re.compile(r'^[\s|+-]*File ".*", line \d+(?:, in .*)?$', re.MULTILINE)


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


def scrub(text: str, values: Collection[str]) -> str:
    """Return the text without these values, as they are or as `repr` and JSON write them."""
    if len(values) > MAX_VALUES:
        return traceback_locations(text)
    forms = {form for value in values if value.strip() for form in _forms(value)}
    if not forms:
        return text
    # The longer one first, in case one value is part of another.
    wanted = re.compile("|".join(_pattern(form) for form in sorted(forms, key=len, reverse=True)))
    parts = _FRAME.split(text)
    kept = _FRAME.findall(text)  # a number in them is a line number
    scrubbed = [wanted.sub(REDACTED, part) for part in parts]
    return "".join(part + frame for part, frame in zip(scrubbed, [*kept, ""], strict=True))


def traceback_locations(text: str) -> str:
    """Return only the locations of a traceback, for a text that cannot be scrubbed safely."""
    return "\n".join([*_FRAME.findall(text), REDACTED])


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


def _forms(value: str) -> set[str]:
    return {value, value.strip(), repr(value)[1:-1], ascii(value)[1:-1], json.dumps(value)[1:-1]}


def _pattern(form: str) -> str:
    found = re.escape(form)
    return found if len(form) >= _SHORT_VALUE else rf"(?<!\w){found}(?!\w)"

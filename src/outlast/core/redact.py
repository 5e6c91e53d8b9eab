"""Taking out of a payload, and of what an error says, all that nobody said may be shown."""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any, Final

REDACTED: Final = "[redacted]"
MOST_VALUES: Final = 1_000
"""With more values than that to look for, what an error says is left out altogether."""

LONGEST_VALUE: Final = 2_000
_SHORT: Final = 4
"""Shorter ones are taken out only where they stand alone, or every word would have holes."""

_FRAME: Final = re.compile(r'^[\s|+-]*File ".*", line \d+(?:, in .*)?$', re.MULTILINE)


def redact(payload: Any, show: Collection[str], path: str = "") -> Any:
    """The payload with `[redacted]` for every value whose field is not in `show`.

    A field is named by its path from the top, `order.city`; what is shown is shown whole.
    """
    if path in show:
        return _bounded(payload)
    if isinstance(payload, dict) and (not path or _is_above(path, show)):
        return {key: redact(value, show, _below(path, key)) for key, value in payload.items()}
    return REDACTED


def redacted_values(payload: Any, show: Collection[str], path: str = "") -> Iterator[str]:
    """Each value that `redact` takes out, as text; names inside it too that are no plain words."""
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
    """The text without these values, as they are or as `repr` and JSON write them."""
    if len(values) > MOST_VALUES:
        return traceback_locations(text)
    forms = {form for value in values if value.strip() for form in _forms(value)}
    if not forms:
        return text
    # Where one value is part of another, the longer one goes first.
    wanted = re.compile("|".join(_pattern(form) for form in sorted(forms, key=len, reverse=True)))
    parts = _FRAME.split(text)
    kept = _FRAME.findall(text)  # a number of theirs is a line, no value
    scrubbed = [wanted.sub(REDACTED, part) for part in parts]
    return "".join(part + frame for part, frame in zip(scrubbed, [*kept, ""], strict=True))


def traceback_locations(text: str) -> str:
    """Of a traceback only where it was: for one of which nobody can say what else is in it."""
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
    return found if len(form) >= _SHORT else rf"(?<!\w){found}(?!\w)"

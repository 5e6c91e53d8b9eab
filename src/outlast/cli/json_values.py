"""JSON values of the records that `--json` prints: nested objects, ISO 8601 times, seconds."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from outlast.core.failure import split_error
from outlast.core.job import Job
from outlast.core.limits import MAX_DEPTH
from outlast.core.metadata import from_text, is_sound
from outlast.core.run import RunRecord
from outlast.core.schedule import JobBlueprint, Plan
from outlast.core.template import Template
from outlast.jobs.payload_limits import MAX_DIGITS

_OPENING: Final = ("[", "{")


def plain(value: Any) -> Any:
    """Convert a record to JSON values: moments become ISO 8601 text, durations become seconds.

    Params, results, progress and errors, which a store holds as text, become JSON values.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return _record(value)
    if isinstance(value, datetime):
        return iso_time(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    return [plain(each) for each in value] if isinstance(value, Iterable) else str(value)


def iso_time(moment: datetime) -> str:
    """Return a moment with microseconds and `Z`; a time of another zone keeps its offset.

    Moments of one zone sort as text.
    """
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def stored_json(text: str | None) -> Any:
    """Return the value of a stored JSON text; a text that no program can read stays text."""
    return _read(text)[0]


def is_unreadable(text: str | None) -> bool:
    """Return True for a stored text that is no JSON, too deep, or has a number too long."""
    return not _read(text)[1]


def _read(text: str | None) -> tuple[Any, bool]:
    """Return the value, and whether the text could be read."""
    if text is None:
        return None, True
    if _depth(text) > MAX_DEPTH:
        return text, False
    try:
        value = json.loads(
            text, parse_int=_integer, parse_float=_number, parse_constant=_refuse_constant
        )
    except ValueError:
        return text, False
    return value, True


def error_value(text: str | None) -> Any:
    """Return a stored error text as an object with `type`, `message` and `traceback`."""
    return None if text is None else plain(split_error(text))


_CONVERTERS: Final[Mapping[tuple[type, str], Callable[[str | None], Any]]] = {
    (Job, "params"): stored_json,
    (Job, "metadata"): stored_json,
    (Job, "progress"): stored_json,
    (JobBlueprint, "metadata"): stored_json,
    (RunRecord, "error"): error_value,
    (RunRecord, "params_snapshot"): stored_json,
    (RunRecord, "progress"): stored_json,
    (RunRecord, "result"): stored_json,
    (Plan, "params"): stored_json,
    (Template, "params"): stored_json,
}
"""Fields of records whose text is JSON or an error."""


def _record(value: Any) -> dict[str, Any]:
    found = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Job | JobBlueprint) and is_sound(value.metadata):
        parts = from_text(found.pop("metadata"))
        found |= {"headers": parts.headers, "tags": parts.tags, "meta": parts.meta}
    converted = {name: _converter(value, name)(each) for name, each in found.items()}
    texts = [name for name in found if _converter(value, name) is stored_json]
    unreadable = [name for name in texts if is_unreadable(found[name])]
    return converted | ({"unreadable": unreadable} if unreadable else {})


def _converter(value: Any, name: str) -> Callable[[Any], Any]:
    return _CONVERTERS.get((type(value), name), plain)


def _depth(text: str) -> int:
    """Return how many brackets are open at once at most; 0 if there are few brackets at all."""
    if sum(map(text.count, _OPENING)) <= MAX_DEPTH:  # quick, and true of nearly every text
        return 0
    depth = deepest = 0
    for char in text:
        depth += (char in _OPENING) - (char in "]}")
        deepest = max(deepest, depth)
    return deepest


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:  # Python refuses to convert it
        raise ValueError(digits)
    return int(digits)


def _number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):  # JSON cannot write it
        raise ValueError(digits)
    return number


def _refuse_constant(name: str) -> float:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(name)

"""Spans of time as people write them: `"5m"`, `"1h30m"`, `timedelta(seconds=2)`."""

import re
from datetime import timedelta

Duration = str | timedelta
"""A timedelta, or text such as "500ms", "15s", "5m", "1h30m", "30d"."""

MICROSECOND = timedelta(microseconds=1)
LONGEST = timedelta(days=36_500)

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_PART = re.compile(r"(\d{1,9})(ms|[smhd])")
_WHOLE = re.compile(r"(?:\d{1,9}(?:ms|[smhd])){1,5}", re.ASCII)


def parse_duration(value: Duration, *, what: str) -> timedelta:
    """The timedelta of `value`; ValueError names `what` when it is not a span within bounds."""
    span = value if isinstance(value, timedelta) else _parse(value, what)
    if not timedelta(0) <= span <= LONGEST:
        raise ValueError(f"{what} is {span}; it must lie between zero and {LONGEST.days} days")
    return span


def format_short(span: timedelta) -> str:
    """As people say it: `45ms`, `3.2s`, `45s`, `3m12s`, `2h05m`, `4d03h`."""
    seconds = abs(span.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:  # noqa: PLR2004 - one digit
        return f"{seconds:.1f}s"
    whole = int(seconds)
    for unit, size, smaller, least in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60)):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // least:02}{smaller}"
    return f"{whole // 60}m{whole % 60:02}s" if whole >= 60 else f"{whole}s"  # noqa: PLR2004


def format_exact(span: timedelta) -> str:
    """As `to_span` reads it: `1h30m`; what is finer than a millisecond is left out."""
    parts = []
    for unit, size in sorted(_UNITS.items(), key=lambda each: each[1], reverse=True):
        number, span = divmod(span, size)
        parts += [f"{number}{unit}"] if number else []
    return "".join(parts) or "0s"


def _parse(text: str, what: str) -> timedelta:
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        shown = repr(text)[:60]
        raise ValueError(f'{what} is {shown}; write a timedelta or text such as "15s" or "1h30m"')
    parts = _PART.findall(text)
    try:
        return sum((int(number) * _UNITS[unit] for number, unit in parts), timedelta(0))
    except OverflowError:
        raise ValueError(f"{what} is {text!r}; that is longer than can be counted") from None

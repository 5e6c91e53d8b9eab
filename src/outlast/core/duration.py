"""Durations: parse text such as `"5m"` or `"1h30m"`, and format timedeltas."""

import re
from datetime import timedelta

Duration = str | timedelta
"""A timedelta, or text such as "500ms", "15s", "5m", "1h30m", "30d"."""

MICROSECOND = timedelta(microseconds=1)
LONGEST = timedelta(days=36_500)
"""The longest duration accepted anywhere: 100 years."""

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_SPELLINGS = {
    **dict.fromkeys(("millisecond", "milliseconds", "msec", "msecs", "millis"), "ms"),
    **dict.fromkeys(("second", "seconds", "sec", "secs"), "s"),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), "m"),
    **dict.fromkeys(("hour", "hours", "hr", "hrs"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
}
_SPELLED = re.compile(rf"(\d)({'|'.join(sorted(_SPELLINGS, key=len, reverse=True))})")
_MAX_DIGITS = 9
_PART = re.compile(r"(\d{1,9})(ms|[smhd])")
_WHOLE = re.compile(r"(?:\d{1,9}(?:ms|[smhd])){1,5}", re.ASCII)


def parse_duration(value: Duration, *, what: str) -> timedelta:
    """Return the timedelta of a duration; `what` names the setting in errors.

    Raises:
        ValueError: The text cannot be parsed, or the duration is negative or too long.
    """
    span = value if isinstance(value, timedelta) else _parse(value, what)
    if not timedelta(0) <= span <= LONGEST:
        raise ValueError(f"{what} is {span}; it must lie between zero and {LONGEST.days} days")
    return span


def format_short(span: timedelta) -> str:
    """Format for people, in at most two units: `45ms`, `3.2s`, `3m12s`, `2h05m`, `4d03h`."""
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
    """Format as `parse_duration` reads it, such as `1h30m`; drops fractions of a millisecond."""
    parts = []
    for unit, size in sorted(_UNITS.items(), key=lambda each: each[1], reverse=True):
        number, span = divmod(span, size)
        parts += [f"{number}{unit}"] if number else []
    return "".join(parts) or "0s"


def suggest(value: object) -> str:
    """Return how a duration that cannot be parsed is written: `1m` for `1 min`, `5s` for `5`."""
    number = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    text = number.replace(" ", "").lower() if isinstance(number, str) else ""
    if text.isdecimal() and len(text) <= _MAX_DIGITS:
        return f'"{text}s" or "{text}m"'
    spelled = _SPELLED.sub(lambda found: found[1] + _SPELLINGS[found[2]], text)
    if _WHOLE.fullmatch(spelled):
        return f'"{spelled}"'
    return 'a timedelta or text such as "15s" or "1h30m"'


def _parse(text: str, what: str) -> timedelta:
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        shown = repr(text)[:60]
        raise ValueError(f"{what} is {shown}; write {suggest(text)}")
    parts = _PART.findall(text)
    try:
        return sum((int(number) * _UNITS[unit] for number, unit in parts), timedelta(0))
    except OverflowError:
        raise ValueError(f"{what} is {text!r}; use at most {LONGEST.days} days") from None

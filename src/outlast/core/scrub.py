"""Remove values, and long parts of them, from a text.

The cost grows with the length of the text and with the logarithm of the number of values, so a
payload of many values cannot stall the thread that reports failures.
"""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

REDACTED: Final = "[redacted]"
MAX_VALUES: Final = 1_000
"""Values to search for in a text; with more, the text is dropped altogether."""

PART: Final = 8
"""Characters from which on the beginning or the end of a longer value is removed, too."""

_SHORT_VALUE: Final = 4
"""Values with fewer characters are removed only as whole words."""

Span = tuple[int, int]


def scrub(text: str, values: Collection[str]) -> str:
    """Return the text without these values, as they are or as `repr` and JSON write them.

    Of a value of more than `PART` characters its beginnings and ends of that length go too, because
    libraries shorten the values that they quote.
    """
    if len(values) > MAX_VALUES:
        return REDACTED if text else text
    forms = {form for value in values if value.strip() for form in _forms(value)}
    mirrored = (
        (len(text) - end, len(text) - start)
        for start, end in _starts(text[::-1], [form[::-1] for form in forms])
    )
    return _without(text, [*_short_values(text, forms), *_starts(text, forms), *mirrored])


def _forms(value: str) -> set[str]:
    return {value, value.strip(), repr(value)[1:-1], ascii(value)[1:-1], json.dumps(value)[1:-1]}


def _short_values(text: str, forms: Iterable[str]) -> Iterator[Span]:
    """Yield where values of fewer than `PART` characters stand."""
    by_length: defaultdict[int, set[str]] = defaultdict(set)
    for form in forms:
        if len(form) < PART:
            by_length[len(form)].add(form)
    for length, wanted in by_length.items():
        for start in range(len(text) - length + 1):
            end = start + length
            if text[start:end] in wanted and (length >= _SHORT_VALUE or _is_word(text, start, end)):
                yield start, end


def _is_word(text: str, start: int, end: int) -> bool:
    around = (text[start - 1 : start], text[end : end + 1])
    return not any(char.isalnum() or char == "_" for char in around)


def _starts(text: str, forms: Iterable[str]) -> Iterator[Span]:
    """Yield where values of at least `PART` characters begin, as far as the text agrees."""
    ordered = sorted(form for form in forms if len(form) >= PART)
    heads = {form[:PART] for form in ordered}
    longest = max(map(len, ordered), default=0)
    for start in range(len(text) - PART + 1):
        if text[start : start + PART] in heads:
            yield start, start + longest_match(text[start : start + longest], ordered)


def longest_match(text: str, ordered: Sequence[str]) -> int:
    """Return the length of the longest common beginning with one of the sorted forms."""
    place = bisect_left(ordered, text)  # the best one is a neighbour of where the text would be
    return max(_common(text, form) for form in ordered[max(place - 1, 0) : place + 1])


def _common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _without(text: str, spans: list[Span]) -> str:
    kept: list[str] = []
    end = 0
    for start, stop in sorted(spans):
        if start > end or not kept:
            kept += [text[end:start], REDACTED]
        end = max(end, stop)
    return "".join([*kept, text[end:]])

"""Suggestions for a name that is not known."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

MAX_NAMES: Final = 20
"""How many known names a message lists at most."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is spelled most like `name`, or None if none is."""
    return next(iter(get_close_matches(name, sorted(known), n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean X?" for the nearest known name, else the known names."""
    names = sorted(known)
    if near := nearest(name, names):
        return f"did you mean {near}?"
    return f"known: {', '.join(names[:MAX_NAMES]) or 'none'}"

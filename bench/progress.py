"""A line on the terminal that says what is being measured, for whoever waits."""

import sys

WIDTH = 70


def tell(text: str = "") -> None:
    """Replace the line; nothing where standard error is not a terminal."""
    if sys.stderr.isatty():
        end = "" if text else "\r"
        print(f"\r{text[:WIDTH]:{WIDTH}}", end=end, file=sys.stderr, flush=True)

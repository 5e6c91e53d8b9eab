"""A status line on the terminal that names the current measurement."""

import sys

WIDTH = 70


def tell(text: str = "") -> None:
    """Replace the status line; no-op if standard error is not a terminal."""
    if sys.stderr.isatty():
        end = "" if text else "\r"
        print(f"\r{text[:WIDTH]:{WIDTH}}", end=end, file=sys.stderr, flush=True)

"""Output of the tour: numbered headings, verified claims and details, in at most 80 columns."""

import re
from collections.abc import Callable, Mapping
from textwrap import wrap
from typing import Final, Literal

Style = Literal["heading", "claim", "detail"]
PrintLine = Callable[[str, Style], None]

WIDTH: Final = 80
"""Columns of the narrowest terminal on which no line wraps."""

MARGIN: Final = "   "
TICK: Final = "✓ "
BAR_WIDTH: Final = 40


class Screen:
    """Prints the tour line by line; a long line continues below the start of its last column."""

    def __init__(self, print_line: PrintLine) -> None:
        self._print_line = print_line
        self._headings = 0

    def intro(self, *lines: str) -> None:
        """Print the lines above the first step."""
        for line in lines:
            self._print(line, "detail")

    def heading(self, text: str) -> None:
        """Begin a step."""
        self._headings += 1
        self._print("", "detail")
        self._print(f"{self._headings}  {text}", "heading")

    def claim(self, text: str) -> None:
        """Print a claim that was verified."""
        self._print(f"{MARGIN}{TICK}{text}", "claim", hanging=len(MARGIN + TICK))

    def detail(self, text: str) -> None:
        """Print a line that belongs to a claim, such as a line of a table."""
        line = f"{MARGIN}  {text}" if text else ""
        columns = [found.end() for found in re.finditer(r" {2,}", line)]
        self._print(line, "detail", hanging=_last_column(line, columns))

    def shares(self, counts: Mapping[str, int]) -> None:
        """Print one bar per name."""
        most = max(counts.values())
        for name, count in sorted(counts.items()):
            self.detail(f"{name}  {count:>4}  {'█' * max(1, round(BAR_WIDTH * count / most))}")

    def _print(self, text: str, style: Style, *, hanging: int = 0) -> None:
        lines = wrap(text, WIDTH, subsequent_indent=" " * hanging, break_on_hyphens=False)
        for line in lines or [""]:
            self._print_line(line, style)


def _last_column(line: str, starts: list[int]) -> int:
    """Return where the last column begins that leaves half of the line for its text."""
    return max([start for start in starts if start <= WIDTH // 2 and line[start:]], default=0)

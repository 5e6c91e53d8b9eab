"""Output of a command: data goes to stdout, messages to stderr; tables or JSON."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from textwrap import indent
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import click

from outlast.cli.json_values import plain
from outlast.cli.progress import Advance, LineProgress, bar
from outlast.core.duration import format_short
from outlast.core.printable import printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDTH_WITHOUT_TERMINAL: Final = 200
"""Width of a table in columns if stdout is a pipe or a file."""

MIN_LAST_COLUMN: Final = 8
"""Width in columns the last column keeps on a terminal that is too narrow."""

COLUMN_GAP: Final = 2
"""Spaces between two columns."""


class CommandOutput:
    """Prints the data and the messages of one command; stored text cannot control the terminal."""

    def __init__(self, *, as_json: bool = False, plain: bool = False) -> None:
        self.as_json = as_json
        self._plain = plain or bool(os.environ.get("NO_COLOR"))

    def message(self, text: str) -> None:
        """Print a message for the user on stderr, on one line."""
        click.echo(printable(text), err=True)

    def line(self, text: str = "") -> None:
        """Print a line of data on stdout; a line break in `text` is shown as an escape."""
        click.echo(printable(text))

    def block(self, text: str) -> None:
        """Print text of several lines on stdout, such as a traceback, indented."""
        click.echo(indent(printable_lines(text.rstrip()), "  "))

    def record(self, value: Any) -> None:
        """Print one object as a line of JSON on stdout: ASCII on a terminal, otherwise UTF-8."""
        is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        click.echo(json.dumps(plain(value), ensure_ascii=sys.stdout.isatty() or not is_utf8))

    def done(self, message: str, value: Any) -> None:
        """Report a change: a message on stderr, and with `--json` the object on stdout."""
        if self.as_json:
            self.record(value)
        self.message(message)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table; a column whose name begins with `>` is aligned to the right.

        Only the last column is truncated to fit the terminal, so ids can be copied.
        """
        from rich.cells import cell_len  # noqa: PLC0415 - slow import, needed for tables only
        from rich.table import Table  # noqa: PLC0415 - same

        table = Table(box=None, pad_edge=False, header_style="" if self._plain else "bold")
        names, cells = (
            [name.lstrip(">") for name in columns],
            [list(map(printable, row)) for row in rows],
        )
        *whole, last = (max(map(cell_len, column)) for column in zip(names, *cells, strict=True))
        before = sum(whole) + COLUMN_GAP * len(whole)
        console = self.console()
        console.width = max(console.width, before + min(last, MIN_LAST_COLUMN))
        for name, width in zip(columns, [*whole, min(last, console.width - before)], strict=True):
            justify: Literal["left", "right"] = "right" if name.startswith(">") else "left"
            table.add_column(
                name.lstrip(">"), justify=justify, overflow="ellipsis", no_wrap=True, width=width
            )
        for row in cells:
            table.add_row(*row)
        self._print(table, console)

    def print(self, what: "RenderableType") -> None:
        """Print a renderable of rich on stdout."""
        self._print(what, self.console())

    def _print(self, what: "RenderableType", console: "Console") -> None:
        """Print with click instead of rich, which would swallow a broken pipe."""
        with console.capture() as drawn:
            console.print(what)
        click.echo(drawn.get(), nl=False)

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Advance]:
        """Show progress on stderr: a bar on a terminal, otherwise a line every ten seconds."""
        if sys.stderr.isatty() and not self._plain:
            with bar(self.console(stderr=True), what, total) as advance:
                yield advance
        else:
            yield LineProgress(what, total, self.message)

    def console(self, *, stderr: bool = False) -> "Console":
        """Return a rich console for stdout, or for stderr."""
        from rich.console import Console  # noqa: PLC0415 - slow import

        stream: IO[str] = sys.stderr if stderr else sys.stdout
        is_terminal = stream.isatty()
        return Console(
            file=stream,
            width=None if is_terminal else WIDTH_WITHOUT_TERMINAL,
            no_color=self._plain,
            highlight=False,
            markup=False,  # a cell such as `[/tmp full]` is text
            emoji=False,
            force_terminal=is_terminal and not self._plain,
        )


def ago(then: datetime | None, now: datetime) -> str:
    """Return the time passed since `then`, such as `3m12s`, or `-` if there is none."""
    return "-" if then is None else format_short(now - then)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 job`, `3,000 jobs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

"""Data on stdout, talk on stderr; tables for people, JSON for scripts."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import click

from outlast.cli.progress import Advance, LineProgress, bar
from outlast.core.duration import format_short

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDE: Final = 200
"""How wide a table may be where nobody looks at it: in a pipe or a file."""

LEAST: Final = 8
"""How much of the last column is shown though the terminal is too narrow for it."""

GAP: Final = 2
_CONTROLS: Final = {
    n: f"\\x{n:02x}" for n in (*range(32), *range(127, 160)) if chr(n) not in "\n\t"
}
"""Others wrote that text: it must not move the cursor, or worse."""


class CommandOutput:
    """Where one command's words go."""

    def __init__(self, *, as_json: bool = False, plain: bool = False) -> None:
        self.as_json = as_json
        self._plain = plain or bool(os.environ.get("NO_COLOR"))

    def message(self, text: str) -> None:
        """A word to the person at the terminal."""
        click.echo(_strip_control(text), err=True)

    def line(self, text: str = "") -> None:
        click.echo(_strip_control(text))

    def record(self, value: Any) -> None:
        """One object as a line of JSON."""
        click.echo(json.dumps(plain(value), ensure_ascii=False))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table; a column whose name begins with `>` is set to the right.

        Only the last column is cut to what the terminal has room for: an id that is cut is none.
        """
        from rich.table import Table  # noqa: PLC0415 - only who prints tables pays for it

        table = Table(box=None, pad_edge=False, header_style="" if self._plain else "bold")
        names, cells = (
            [name.lstrip(">") for name in columns],
            [list(map(_strip_control, row)) for row in rows],
        )
        *whole, last = (max(map(len, column)) for column in zip(names, *cells, strict=True))
        before = sum(whole) + GAP * len(whole)
        console = self.console()
        console.width = max(console.width, before + min(last, LEAST))
        for name, width in zip(columns, [*whole, min(last, console.width - before)], strict=True):
            justify: Literal["left", "right"] = "right" if name.startswith(">") else "left"
            table.add_column(
                name.lstrip(">"), justify=justify, overflow="ellipsis", no_wrap=True, width=width
            )
        for row in cells:
            table.add_row(*map(_literal, row))
        self._print(table, console)

    def print(self, what: "RenderableType") -> None:
        """Something of rich's."""
        self._print(what, self.console())

    def _print(self, what: "RenderableType", console: "Console") -> None:
        """In one piece, and not by rich: a reader that is gone is ours to notice."""
        with console.capture() as drawn:
            console.print(what)
        click.echo(drawn.get(), nl=False)

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Advance]:
        """A bar with rate and time left on a terminal; a line every ten seconds elsewhere."""
        if sys.stderr.isatty() and not self._plain:
            with bar(self.console(talk=True), what, total) as advance:
                yield advance
        else:
            yield LineProgress(what, total, self.message)

    def console(self, *, talk: bool = False) -> "Console":
        """A rich console for stdout, or for stderr when it is talk."""
        from rich.console import Console  # noqa: PLC0415 - as above

        stream: IO[str] = sys.stderr if talk else sys.stdout
        is_terminal = stream.isatty()
        return Console(
            file=stream,
            width=None if is_terminal else WIDE,
            no_color=self._plain,
            highlight=False,
            markup=True,
            emoji=False,
            force_terminal=is_terminal and not self._plain,
        )


def plain(value: Any) -> Any:
    """A record as JSON can carry it: moments as text, spans in seconds."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str | int | float | None):
        return value
    return [plain(each) for each in value] if isinstance(value, Iterable) else str(value)


def ago(then: datetime | None, now: datetime) -> str:
    """How long ago, as people say it: `3m12s`."""
    return "-" if then is None else format_short(now - then)


def _strip_control(text: str) -> str:
    return text.translate(_CONTROLS)


def _literal(cell: str) -> str:
    from rich.markup import escape  # noqa: PLC0415 - as above

    return escape(cell)

"""Progress of a long command: a bar on a terminal, lines in a pipe or a file."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from outlast.core.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

LINE_INTERVAL_S: Final = 10.0
"""Seconds between two progress lines."""


class Advance(Protocol):
    """Callable that reports progress."""

    def __call__(self, more: int = 1, total: int | None = None) -> None:
        """Report that `more` items are done, and the total if it is known by now."""
        ...


@contextmanager
def bar(console: "Console", what: str, total: int | None) -> Iterator[Advance]:
    """Show a bar with count, rate and remaining time."""
    from rich.progress import (  # noqa: PLC0415 - slow import, needed on a terminal only
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text  # noqa: PLC0415 - same

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

    label = TextColumn("{task.description}", markup=False)
    columns = (label, BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(printable(what), total=total)

        def advance(more: int = 1, total: int | None = None) -> None:
            progress.update(task, advance=more, total=total)

        yield advance


class LineProgress:
    """Prints a progress line every ten seconds."""

    def __init__(self, what: str, total: int | None, message: Callable[[str], None]) -> None:
        self._what = what
        self._total = total
        self._message = message
        self._done = 0
        self._began = self._printed_at = monotonic()

    def __call__(self, more: int = 1, total: int | None = None) -> None:
        """Report progress; print a line if the interval has passed."""
        self._done += more
        self._total = total if total is not None else self._total
        now = monotonic()
        if now - self._printed_at >= LINE_INTERVAL_S:
            self._printed_at = now
            of = "" if self._total is None else f" of {self._total:,}"
            self._message(
                f"{self._what}: {self._done:,}{of}, {self._done / (now - self._began):,.0f}/s"
            )

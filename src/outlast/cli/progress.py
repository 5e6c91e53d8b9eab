"""How far long work is: a bar for people, a line now and then for files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from rich.console import Console

EVERY: Final = 10.0


class Advance(Protocol):
    """Say that so much more is done, and how much it is in all if that is known by now."""

    def __call__(self, more: int = 1, total: int | None = None) -> None: ...


@contextmanager
def bar(console: "Console", what: str, total: int | None) -> Iterator[Advance]:
    """A bar with count, rate and time left."""
    from rich.progress import (  # noqa: PLC0415 - only on a terminal
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

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)

        def advance(more: int = 1, total: int | None = None) -> None:
            progress.update(task, advance=more, total=total)

        yield advance


class LineProgress:
    """A line every ten seconds."""

    def __init__(self, what: str, total: int | None, say: Callable[[str], None]) -> None:
        self._what = what
        self._total = total
        self._say = say
        self._done = 0
        self._began = self._told = monotonic()

    def __call__(self, more: int = 1, total: int | None = None) -> None:
        self._done += more
        self._total = total if total is not None else self._total
        now = monotonic()
        if now - self._told >= EVERY:
            self._told = now
            of = "" if self._total is None else f" of {self._total:,}"
            self._say(
                f"{self._what}: {self._done:,}{of}, {self._done / (now - self._began):,.0f}/s"
            )

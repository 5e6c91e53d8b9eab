"""Plain tables of the figures."""

from collections.abc import Sequence
from typing import Any

from bench.figures import Line, Series

SYNC = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def header(machine: dict[str, Any], pragmas: dict[str, dict[str, Any]]) -> list[str]:
    """Return the description of the machine and of the SQLite settings."""
    first = "Python {python}, SQLite {sqlite}, Pydantic {pydantic}, Huey {huey}, {cores} cores"
    set_by = [f"{side}: {_pragmas(found)}" for side, found in pragmas.items()]
    return [first.format_map(machine), load_and_flush("before", machine), *set_by]


def load_and_flush(when: str, machine: dict[str, Any]) -> str:
    """Return the load of the machine and the flush time of its disk."""
    return when + ": load {load}, flush p50 {flush_us} us in {folder}".format_map(machine)


def comparison(lines: Sequence[Line]) -> list[str]:
    """Return a table of both sides; a ratio above one means that Outlast is better."""
    rows = [["", "", "outlast", "huey", "ratio", "asked"]]
    return table(rows + [_compared(line) for line in lines])


def growth(names: Sequence[str], rates: Sequence[Series]) -> list[str]:
    """Return a table of the sizes with their ratio to the first."""
    rows = [["claim and finish", "jobs/s", "of the first", "asked"]]
    for place, (name, rate) in enumerate(zip(names, rates, strict=True)):
        asked = "at least 0.90x" if place >= len(names) - 2 else ""
        rows.append([name, spread(rate), f"{spread(rate.over(rates[0]), 2)}x", asked])
    return table(rows)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the cells in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ((cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return ["  ".join(cells).rstrip() for cells in padded]


def spread(series: Series, digits: int = 0) -> str:
    """Return the median with the minimum and the maximum."""
    low, high = min(series.values), max(series.values)
    return f"{series.middle:,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def _compared(line: Line) -> list[str]:
    figure, ratio = line.figure, line.ratio
    huey = "-" if line.huey is None else spread(line.huey, figure.digits)
    times = "-" if ratio is None else f"{spread(ratio, 1)}x"
    return [figure.label, figure.unit, spread(line.ours, figure.digits), huey, times, figure.asked]


def _pragmas(found: dict[str, Any]) -> str:
    sync = found["synchronous"]
    return f"journal_mode {found['journal_mode']}, synchronous {sync} ({SYNC.get(sync, '?')})"

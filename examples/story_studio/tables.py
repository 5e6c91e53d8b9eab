"""Rows as a table for people: short ids, times of day, and no column that is empty throughout."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Any, Final

WIDEST: Final = 24
ID: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def table(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows under their name."""
    if not rows:
        return f"{name}: no rows"
    shown = [{column: _cell(column, value) for column, value in row.items()} for row in rows]
    full = [column for column in shown[0] if any(row[column] for row in shown)]
    lines = [full, *([row[column] for column in full] for row in shown)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(full))]
    padded = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join([name, *(f"  {line}" for line in padded)])


def _cell(column: str, value: Any) -> str:
    match value:
        case None | [] | False:
            return ""
        case datetime() if column.startswith("next"):
            return value.strftime("%Y-%m-%d %H:%MZ")
        case datetime():
            return value.strftime("%H:%M:%S.%f")[:-3]
        case dict():
            return _cut(", ".join(str(part) for part in value.values()))
        case list():
            return ", ".join(map(_file, value))
        case _:
            return _text(column, str(value))


def _text(column: str, text: str) -> str:
    if column.endswith("_path"):
        return _file(text)
    if column == "error":
        return _cut(text.strip().rpartition("\n")[2])  # a program says last what went wrong
    if column == "reserved_by":
        return f"…{text[text.rfind(' for ') :]}"
    return _short(text)


def _short(name: str) -> str:
    """The end of an id, for ids made together begin alike; any other name stays as it is."""
    return f"…{name[-12:]}" if ID.fullmatch(name) else name


def _file(path: str) -> str:
    """The last two parts of a path, whose name is mostly an id, or two with a dot between."""
    file = PurePath(path)
    name = ".".join(map(_short, file.stem.split(".")))
    return f"{file.parent.name}/{name}{file.suffix}"


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"

"""Loader of named SQL statements, shared by the stores that speak SQL."""

from collections.abc import Callable
from importlib import resources

Probe = Callable[[str, bool], None]
"""Called with a statement's name before (False) and after (True) it runs; crash tests use it."""

_NAME_MARK = "-- @"


def load_statements(package: str) -> dict[str, str]:
    """Return every statement of the `sql` folder of a package, without its comments.

    A statement's name is its file's name, a dot, and the word after `-- @` on the line above it.
    """
    found: dict[str, str] = {}
    for file in (resources.files(package) / "sql").iterdir():
        if file.name.endswith(".sql"):
            prefix = file.name.removesuffix(".sql")
            found.update(_split(prefix, file.read_text(encoding="utf-8")))
    return found


def _split(prefix: str, text: str) -> dict[str, str]:
    _, *parts = text.split(_NAME_MARK)
    split = (part.split("\n", 1) for part in parts)
    return {f"{prefix}.{name.strip()}": _without_comments(body) for name, body in split}


def _without_comments(body: str) -> str:
    """Drop comments: sqlite3 must see the verb first, and a colon in one looks like a name."""
    lines = (line for line in body.strip().splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(line.split(" -- ", 1)[0].rstrip() for line in lines).rstrip("; \n")

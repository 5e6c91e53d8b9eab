"""Which app and which store a command is about, and who said so."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlast.errors import InvalidType

TABLE = "[tool.outlast]"


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value, and where it was found."""

    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Target:
    """An app's address, or a store's; never both from the same kind of place."""

    app: SourcedValue | None
    url: SourcedValue | None


def find(app: str | None, url: str | None, *, folder: Path | None = None) -> Target:
    """What the options say, else the environment, else the pyproject.toml of this folder."""
    if app is not None and url is not None:
        raise InvalidType("--app and --url were both given; an app has its own store, so give one")
    if app is not None or url is not None:
        return Target(_given(app, "--app"), _given(url, "--url"))
    names = {"app": "OUTLAST_APP", "url": "OUTLAST_URL"}
    found = {key: _given(os.environ.get(name), name) for key, name in names.items()}
    if not any(found.values()):
        found = _written(folder or Path.cwd())
    return Target(found.get("app"), found.get("url"))


def _given(value: str | None, source: str) -> SourcedValue | None:
    return SourcedValue(value, source) if value else None


def _written(folder: Path) -> dict[str, SourcedValue | None]:
    """What its pyproject.toml says of us; none above it: modules and files are named from here."""
    file = folder / "pyproject.toml"
    if not file.is_file():
        return {}
    try:
        table = _table(tomllib.loads(file.read_text(encoding="utf-8")))
    except (ValueError, OSError) as error:
        raise InvalidType(f"{file} cannot be read: {error}; mend it, or give --app") from error
    return {key: _checked(table[key], key, file) for key in ("app", "url") if key in table}


def _table(document: Any) -> Mapping[str, object]:
    for name in ("tool", "outlast"):
        document = document.get(name, {})
        if not isinstance(document, Mapping):
            raise ValueError(f"{name} is no table")  # noqa: TRY004 - of the file, not of an argument
    return document  # type: ignore[no-any-return]  # as just seen


def _checked(value: object, key: str, file: Path) -> SourcedValue:
    if not isinstance(value, str):
        raise InvalidType(f"{key} of {TABLE} in {file} is {value!r:.80}; write text in quotes")
    return SourcedValue(value, str(file))

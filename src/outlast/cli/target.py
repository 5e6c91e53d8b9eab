"""Resolve the app or the store of a command: options, environment, pyproject.toml."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outlast.core.address import repr_address
from outlast.errors import InvalidType

TABLE = "[tool.outlast]"


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value and where it was found."""

    value: str = field(repr=False)  # may hold a password
    source: str


@dataclass(frozen=True, slots=True)
class Target:
    """What a command works on: the address of an app, or the URL of a store."""

    app: SourcedValue | None
    url: SourcedValue | None
    folder: Path | None = None
    """Folder of the pyproject.toml that names it; modules and files are relative to it."""

    def enter(self) -> "Target":
        """Change to `folder`, so that a command means the same store in every subfolder."""
        if self.folder is not None and self.folder != Path.cwd():
            os.chdir(self.folder)
        return self


def find(app: str | None, url: str | None, *, folder: Path | None = None) -> Target:
    """Resolve the target from the options, else the environment, else pyproject.toml.

    Args:
        app: Value of `--app`.
        url: Value of `--url`.
        folder: Folder where the search for pyproject.toml starts; the current one by default.

    Raises:
        InvalidType: Both options are given, the app is a URL, or pyproject.toml is invalid.
    """
    found = _find(app, url, folder or Path.cwd())
    if found.app is not None and ("://" in found.app.value or "@" in found.app.value):
        raise InvalidType(
            f"{repr_address(found.app.value)}, from {found.app.source}, is not the address of an "
            "app; write module:attribute, or set OUTLAST_URL to the URL of a store"
        )
    return found


def find_both(app: str | None, url: str | None) -> Target:
    """Resolve an app as `find` does, and with it the store of `--url`, if that is given."""
    return replace(find(app, None), url=_given(url, "--url"))


def _find(app: str | None, url: str | None, start: Path) -> Target:
    if app is not None and url is not None:
        raise InvalidType("--app and --url were both given; give only one, an app has its own URL")
    if app is not None or url is not None:
        return Target(_given(app, "--app"), _given(url, "--url"))
    names = {"app": "OUTLAST_APP", "url": "OUTLAST_URL"}
    found = {key: _given(os.environ.get(name), name) for key, name in names.items()}
    if any(found.values()):
        return Target(found["app"], found["url"])
    parents = (each for each in start.parents if is_own_file(each / "pyproject.toml"))
    for each in (start, *parents):
        if values := _from_pyproject(each):
            return Target(values.get("app"), values.get("url"), each)
    return Target(None, None)


def _given(value: str | None, source: str) -> SourcedValue | None:
    return SourcedValue(value, source) if value else None


def is_own_file(file: Path) -> bool:
    """Whether this user or root owns the file: the app that it names is code that runs."""
    return file.is_file() and file.stat().st_uid in (0, os.getuid())


def _from_pyproject(folder: Path) -> dict[str, SourcedValue]:
    """Return the values in pyproject.toml of `folder`; empty if it has none."""
    file = folder / "pyproject.toml"
    if not file.is_file():
        return {}
    try:
        table = _table(tomllib.loads(file.read_text(encoding="utf-8")))
    except (ValueError, OSError) as error:
        raise InvalidType(f"{file} cannot be read: {error}; fix it, or give --app") from error
    return {key: _checked(table[key], key, file) for key in ("app", "url") if key in table}


def _table(document: Any) -> Mapping[str, object]:
    for name in ("tool", "outlast"):
        document = document.get(name, {})
        if not isinstance(document, Mapping):
            raise ValueError(f"{name} is not a table")  # noqa: TRY004 - an error in the file
    return document  # type: ignore[no-any-return]  # the loop checked it


def _checked(value: object, key: str, file: Path) -> SourcedValue:
    if not isinstance(value, str):
        raise InvalidType(f"{key} of {TABLE} in {file} is {value!r:.80}; write a quoted string")
    return SourcedValue(value, str(file))

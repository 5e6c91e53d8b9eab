"""Load an app from its address, `module:attribute`."""

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from traceback import TracebackException
from typing import Final

from outlast.app import Outlast
from outlast.core.suggestion import MAX_NAMES, nearest
from outlast.errors import InvalidType

MAX_FILES: Final = 200
"""How many files of the folder are searched for apps."""

_ASSIGNMENT: Final = re.compile(
    r"^(\w+)(?:\s*:[^=\n]*)?\s*=\s*(?:outlast\.)?Outlast\(", re.MULTILINE
)
"""A line of a file that creates an app."""

LIBRARY: Final = f"{Path(__file__).parent.parent}/"
"""Folder of this package: an error of the user's code is not located in it."""


def load_app(address: str) -> Outlast:
    """Import the module and return the app at `address`.

    The current folder is put on `sys.path`, as `python -m` does.

    Raises:
        InvalidType: The address is malformed, the import fails, or the attribute is no app. The
            message is a single line.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    name, _, attribute = address.partition(":")
    if not name or not attribute:
        raise InvalidType(
            f"{address!r:.120} is not the address of an app; write module:attribute; "
            f"{_suggest(address)}"
        )
    return _app(_module(name), attribute, address)


def _suggest(text: str) -> str:
    """Return the apps in the file or module that was named, else those of this folder."""
    name = text.removesuffix(".py").strip("./:").replace("/", ".")
    if name and all(part.isidentifier() for part in name.split(".")) and _exists(name):
        return _other_apps(_module(name), name)
    return _apps_here(name)


def _exists(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except Exception:  # noqa: BLE001 - the code of a parent package raised
        return False


def _apps_here(name: str) -> str:
    """Return the apps that the files of this folder assign, found without importing them."""
    found = sorted(
        f"{file.stem}:{attribute}"
        for file in islice(Path.cwd().glob("*.py"), MAX_FILES)
        for attribute in _ASSIGNMENT.findall(file.read_text(encoding="utf-8", errors="replace"))
    )
    near = nearest(f"{name.partition(':')[0]}:app", found)
    if near is not None or len(found) == 1:
        return f"did you mean {near or found[0]}?"
    return f"apps in this folder: {', '.join(found[:MAX_NAMES]) or 'none'}"


def _module(name: str) -> object:
    try:
        return import_module(name)
    except BaseException as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]
        hint = f"; {_apps_here(name)}" if is_missing else ""
        raise InvalidType(f"cannot import {name!r:.120}: {_error_line(error)}{hint}") from error


def _app(module: object, attribute: str, address: str) -> Outlast:
    found = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Outlast):
        kind = (
            "does not exist"
            if found is None
            else f"is a {type(found).__name__}, not an Outlast app"
        )
        raise InvalidType(f"{address!r:.120} {kind}; {_other_apps(module, address)}")
    return found


def _other_apps(module: object, address: str) -> str:
    name = address.partition(":")[0]
    apps = [f"{name}:{key}" for key, each in vars(module).items() if isinstance(each, Outlast)]
    if len(apps) == 1:
        return f"did you mean {apps[0]}?"
    return f"apps in that module: {', '.join(sorted(apps)) or 'none'}"


def _error_line(error: BaseException) -> str:
    """Describe the error in one line, with the file and line of the innermost user frame."""
    traceback = TracebackException.from_exception(error)
    what = " ".join("".join(traceback.format_exception_only()).split())
    what = what.removeprefix("outlast.errors.")
    frames = [
        frame
        for frame in traceback.stack
        if "importlib" not in frame.filename and not frame.filename.startswith(LIBRARY)
    ]
    at = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{what[:500]}{at}"

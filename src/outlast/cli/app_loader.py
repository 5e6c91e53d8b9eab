"""Load an app from its address, `module:attribute`."""

import sys
from importlib import import_module
from pathlib import Path
from traceback import TracebackException
from typing import Final

from outlast.app import Outlast
from outlast.errors import InvalidType

LIBRARY: Final = f"{Path(__file__).parent.parent}/"
"""Folder of this package: an error of the user's code is not located in it."""


def load_app(address: str) -> Outlast:
    """Import the module and return the app at `address`.

    The current folder is put on `sys.path`, as `python -m` does.

    Raises:
        InvalidType: The address is malformed, the import fails, or the attribute is no app. The
            message is a single line.
    """
    name, _, attribute = address.partition(":")
    if not name or not attribute:
        raise InvalidType(
            f"{address!r:.120} is not the address of an app; write module:attribute, such as "
            f"{_address_of(address)}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return _app(_module(name), attribute, address)


def _address_of(text: str) -> str:
    """Return an address for the name of a file or a module: `src/jobs.py` is `src.jobs:app`."""
    name = text.removesuffix(".py").strip("./:").replace("/", ".")
    return f"{name}:app" if all(part.isidentifier() for part in name.split(".")) else "tasks:app"


def _module(name: str) -> object:
    try:
        return import_module(name)
    except BaseException as error:
        raise InvalidType(f"cannot import {name!r:.120}: {_error_line(error)}") from error


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

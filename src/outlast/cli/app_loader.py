"""Load an app from its address, `module:attribute`."""

import sys
from importlib import import_module
from pathlib import Path
from traceback import TracebackException

from outlast.app import Outlast
from outlast.errors import InvalidType


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
            "tasks:app"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return _app(_module(name), attribute, address)


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
        apps = sorted(name for name, each in vars(module).items() if isinstance(each, Outlast))
        kind = (
            "does not exist"
            if found is None
            else f"is a {type(found).__name__}, not an Outlast app"
        )
        raise InvalidType(
            f"{address!r:.120} {kind}; apps in that module: {', '.join(apps) or 'none'}"
        )
    return found


def _error_line(error: BaseException) -> str:
    """Describe the error in one line, with the file and line of the innermost user frame."""
    traceback = TracebackException.from_exception(error)
    what = " ".join("".join(traceback.format_exception_only()).split())
    frames = [frame for frame in traceback.stack if "importlib" not in frame.filename]
    at = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return f"{what[:500]}{at}"

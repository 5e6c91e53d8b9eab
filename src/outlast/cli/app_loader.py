"""From an app's address, `module:attribute`, to the app."""

import sys
from importlib import import_module
from pathlib import Path
from traceback import TracebackException

from outlast.app import Outlast
from outlast.errors import InvalidType


def load_app(address: str) -> Outlast:
    """The app at that address; InvalidType says in one line why there is none."""
    name, _, attribute = address.partition(":")
    if not name or not attribute:
        raise InvalidType(
            f"{address!r:.120} is no app's address; write module:attribute, such as tasks:app"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return _app(_module(name), attribute, address)


def _module(name: str) -> object:
    try:
        return import_module(name)
    except BaseException as error:
        raise InvalidType(f"cannot import {name!r:.120}: {_in_one_line(error)}") from error


def _app(module: object, attribute: str, address: str) -> Outlast:
    found = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Outlast):
        apps = sorted(name for name, each in vars(module).items() if isinstance(each, Outlast))
        kind = "nothing" if found is None else f"a {type(found).__name__}"
        raise InvalidType(
            f"{address!r:.120} is {kind}, not an Outlast app; apps in that module: "
            f"{', '.join(apps) or 'none'}"
        )
    return found


def _in_one_line(error: BaseException) -> str:
    """What was raised and where: the last place in code that the user wrote."""
    told = TracebackException.from_exception(error)
    what = " ".join("".join(told.format_exception_only()).split())
    frames = [frame for frame in told.stack if "importlib" not in frame.filename]
    at = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    return f"{what[:500]}{at}"
